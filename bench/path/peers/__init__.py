"""The proxies that are compared, a file each: routing by content or by session, access logs off, one core's threads."""
