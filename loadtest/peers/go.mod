module github.com/cellmq/cellmq/loadtest/peers

go 1.26.0

replace github.com/cellmq/cellmq => ../..

require github.com/cellmq/cellmq v0.0.0-00010101000000-000000000000

require github.com/yalue/onnxruntime_go v1.27.0

require golang.org/x/sys v0.50.0 // indirect
