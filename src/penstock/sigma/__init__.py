"""Detection rules in Sigma's format as views: a Spark SQL back end of pySigma, and the script that it writes.

The modules but `script` import pySigma, which the extra `penstock[sigma]` installs.
"""
