"""Where workers are learned from. Each source yields complete sets; the roster joins them with what admins changed."""
