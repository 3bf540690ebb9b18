from backends.cli import main

raise SystemExit(main())
