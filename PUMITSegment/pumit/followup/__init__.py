"""The same lesions at another date: scans registered, lesions carried over and measured."""
