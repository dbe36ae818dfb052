"""One trainer; one task per objective; generated scans."""
