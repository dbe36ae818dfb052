"""The same lesions at another date: scans registered, lesions carried over, matched and measured."""
