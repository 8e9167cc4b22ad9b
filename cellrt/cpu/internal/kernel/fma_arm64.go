package kernel

// fma returns x*y + z rounded once to float32. The compiler makes one
// instruction of it on this architecture, which a test checks.
func fma(x, y, z float32) float32 { return x*y + z }
