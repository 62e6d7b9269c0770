// Package lmcache reads and answers the protocol of LMCache's cache controller:
// what its workers tell of the chunks that they hold, and who is asked for them.
//
// [Decode] turns one message into its class, [Append] writes one. A [Controller]
// keeps what the messages of workers tell and answers [Controller.Lookup] as the
// controller of the given release does, [Controller.Prefixes] as a router needs
// it: which worker holds how much of a prompt. It has no sockets: a worker
// PUSHes its messages and REQuests with a reply; hand each frame to
// [Controller.HandleFrame].
//
// Chunks are named by LMCache's own hashes (engine "lmcache" in package
// blockhash), which have nothing to do with those of the engine beside it. Keys are
// integers: digests, which every algorithm but "builtin" gives to 0.3.15,
// the controller refuses itself.
//
// Sources: lmcache/v1/cache_controller of LMCache 0.3.9, 0.3.15, 0.4.7 and
// 0.5.6; testdata/lmcache holds their messages and their controller's answers.
package lmcache
