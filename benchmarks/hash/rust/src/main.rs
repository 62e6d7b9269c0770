//! Times the hashing of the routers Dynamo and smg on the workload of ../main.go and prints JSON lines, CPU time per
//! block. With the argument "vectors" it prints Dynamo's hashes of a small prompt instead.
//! Both hash with XXH3-64 in a scheme of their own: these are the router's keys, not an engine's block hashes.
use dynamo_kv_router::protocols::{BlockHashOptions, compute_block_hash_for_seq, compute_seq_hash_for_block};
use kv_index::{compute_request_content_hashes, request_prefix_hashes};

fn cpu_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

fn workload(n: usize) -> Vec<u32> {
    let mut state: u64 = 1;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % 151_936) as u32
        })
        .collect()
}

fn report(bench: &str, tokens: &[u32], block: usize, run: impl Fn(&[u32]) -> usize) {
    let blocks = tokens.len() / block;
    let repeat = (50_000 / blocks).max(1);
    let mut times: Vec<f64> = (0..15)
        .map(|_| {
            let start = cpu_ns();
            for _ in 0..repeat {
                std::hint::black_box(run(std::hint::black_box(tokens)));
            }
            (cpu_ns() - start) as f64 / (repeat * blocks) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{{\"bench\":\"{bench}/{}k/{block}\",\"ns_per_block\":{:.3}}}", tokens.len() / 1000, times[times.len() / 2]);
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("vectors") {
        let tokens: Vec<u32> = (0..40).map(|i| i * 7919).collect();
        for block in [1u32, 4, 16] {
            let local = compute_block_hash_for_seq(&tokens, block, BlockHashOptions::default());
            println!("{block}: {:?}", compute_seq_hash_for_block(&local));
        }
        return;
    }
    for n in [8_000, 100_000] {
        for block in [16usize, 64] {
            let tokens = workload(n);
            report("dynamo", &tokens, block, |t| {
                let local = compute_block_hash_for_seq(t, block as u32, BlockHashOptions::default());
                compute_seq_hash_for_block(&local).len()
            });
            report("smg", &tokens, block, |t| {
                request_prefix_hashes(&compute_request_content_hashes(t, block)).len()
            });
        }
    }
}
