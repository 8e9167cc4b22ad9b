package registry

import "time"

// PartBytes is the size of a part of a file, all but the last one's.
const PartBytes = 8 << 20

// partPatience is how long a part may take beside a second for each MiB of it.
const partPatience = 30 * time.Second
