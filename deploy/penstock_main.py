"""The program that spark-submit starts: `spark-submit penstock_main.py run SCRIPT --output DIR`."""

from penstock.cli.main import main

main()
