use sluice_core::*;
use sluice_text as _;
use std::time::Instant;
fn main() {
    let channels = Channels::default();
    let ids: Vec<_> = (0..50)
        .map(|n| {
            channels
                .intern(Channel::new(Name::from_text(&format!("CH_{n}")), "log", Encoding::Lcm))
                .unwrap()
        })
        .collect();
    let mut t = 1_194_098_400_000_000_000i64;
    let mut b = BatchBuilder::with_capacity(8192);
    for i in 0..8192i64 {
        t += 1_000_000;
        b.push_copy(t, i, ids[(i % 50) as usize], &[7; 100]);
    }
    let b = b.finish();
    let pool = BlockPool::new(2 << 20, 4);
    for (name, opt) in [
        ("jsonl", serde_json::json!({"path":"x"})),
        ("jsonl", serde_json::json!({"path":"x","crc32":false})),
        ("jsonl", serde_json::json!({"path":"x","payload":true})),
        ("csv", serde_json::json!({"path":"x"})),
        ("text", serde_json::json!({})),
    ] {
        let Make::Sink(make) = Registry::linked().get(Kind::Sink, name).unwrap().make else {
            panic!()
        };
        let s = make(opt.clone()).unwrap();
        let go = Instant::now();
        for _ in 0..100 {
            let mut c = EncodeContext::new(&channels, &pool);
            drop(s.encode(b.clone(), &mut c).unwrap());
        }
        println!("{name} {opt}: {:.1} ns/event", go.elapsed().as_nanos() as f64 / 819200.0);
    }
}
