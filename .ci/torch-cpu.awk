# Splits a lock file's torch in two: the CPU build on Linux, whose checksum is handed in, the index's own build elsewhere.
/^torch==/ {
    version = $1
    printf "%s+cpu ; sys_platform == 'linux' \\\n    --hash=sha256:%s\n", version, sha256
    printf "%s ; sys_platform != 'linux' \\\n", version
    next
}
{ print }
