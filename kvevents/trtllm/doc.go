// Package trtllm reads the KV cache events of TensorRT-LLM in JSON: those that
// LLM.get_kv_cache_events returns and trtllm-serve answers at POST
// /kv_cache_events. A [Poller] fetches them and feeds a kvevents.Handler, such as
// that of a kvatlas.Atlas; a [Decoder] alone reads what came another way.
//
// From documents: nothing here was run against TensorRT-LLM. The sources are
//
//   - tensorrt_llm/_utils.py, class KVCacheEventSerializer: the JSON;
//   - cpp/tensorrt_llm/batch_manager/kvCacheEventManager.cpp (05843b0a):
//     numbers, the buffer that drops its oldest events, ranks;
//   - cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp: one announcement a block
//     of the search tree, blocks that move between levels, the last token that is
//     always computed;
//   - tensorrt_llm/runtime/kv_cache_manager_v2/_event_manager.py (1c39d359) and
//     its tests: hash_algo, layer_group_id, hashes as text;
//   - tensorrt_llm/serve/openai_server.py: the endpoint, which hands each event
//     out once;
//   - components/src/dynamo/trtllm/publisher.py of ai-dynamo/dynamo and its test
//     fixtures (b37c409b): partial blocks, attention windows.
//
// # What becomes of an event
//
//	created   AllBlocksCleared: the cache is new
//	stored    BlockStored of the whole plain blocks; the others are announced by
//	          hash alone, so that they match nothing until they are removed
//	updated   a change of cache_level: BlockRemoved there and BlockStored here; a
//	          change of priority is nothing
//	removed   BlockRemoved without a medium: on whichever level the block is
//
// Cache level 0 is GPU, 1 is CPU, those beyond are STORAGE. A block of fewer tokens
// than the others is a partial one: the engine keeps them, and takes them out or
// fills them later, under another hash. Blocks with a salt, multimodal keys, extra
// ids or tokens that are no numbers are not plain, nor are those after them.
//
// # Attention windows
//
// Each event is of one window_size. Without [Options.Windows] the events of the
// largest are read and the others left out (Stats.OtherWindows), which is what
// Dynamo does: for models that mix windows the prediction is an upper bound. With
// it the place of an event's window is its cache group.
//
// # Losses
//
// The numbers of the events tell (event_id, counted up by each attention
// data-parallel rank from 0): the engine's buffer drops its oldest events when it
// is full (event_buffer_max_size), and a second poller takes events away from the
// first. Each hole is a kvevents.Loss, and what was known of that rank is
// forgotten, since removals may be among what is missing.
//
// The streamed form of the same events (kv_events_config, publisher zmq) is that of
// vLLM with maps: kvevents.Subscriber reads it.
package trtllm
