"""`python -m penstock_lab` is the command `penstock-lab`."""

from penstock_lab.cli import main

if __name__ == "__main__":
    main()
