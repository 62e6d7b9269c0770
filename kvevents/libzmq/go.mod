module github.com/kvatlas/kvatlas/kvevents/libzmq

go 1.26

require github.com/kvatlas/kvatlas v0.0.0

require github.com/pebbe/zmq4 v1.4.0

replace github.com/kvatlas/kvatlas => ../..
