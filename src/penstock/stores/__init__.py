"""The two stores under everything durable: `Files`, immutable contents by name, and `Ledger`, documents with one writer."""
