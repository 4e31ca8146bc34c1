use sluice_core::*;
use sluice_stages as _;
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
    let mut batches = vec![];
    let mut t = 0i64;
    let mut x = 12345u64;
    let seg = bytes::Bytes::from(vec![7u8; 1 << 20]);
    for _ in 0..256 {
        let mut b = BatchBuilder::with_capacity(8192);
        let s = b.segment(seg.clone());
        for i in 0..8192i64 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            t += 1_000_000;
            let jit = (x % 50) as i64 * 1_000_000;
            b.push(
                t - jit,
                i,
                ids[(x >> 20) as usize % 50],
                &seg[0..100],
                Place { segment: s, offset: ((x >> 8) % 10000) as u32 },
            );
        }
        batches.push(b.finish());
    }
    let n = (256 * 8192) as f64;
    for (name, opt) in [
        ("filter", serde_json::json!({})),
        ("filter", serde_json::json!({"channels":"CH_1*"})),
        ("filter", serde_json::json!({"channels":"CH_1*","start":"1s","end":"1000s"})),
        ("filter", serde_json::json!({"exclude":"CH_7"})),
        ("time", serde_json::json!({"shift":"1s"})),
        ("rename", serde_json::json!({"prefix":"x"})),
        ("limit", serde_json::json!({"events":100000000})),
        ("sample", serde_json::json!({"every":2})),
        ("sample", serde_json::json!({"max_hz":5})),
        ("time", serde_json::json!({"sort":"60ms"})),
        ("time", serde_json::json!({"sort":"10s"})),
        ("time", serde_json::json!({"sort":"900s","sort_bytes":"10GB"})),
        ("time", serde_json::json!({"sort":"2000s","sort_bytes":"10GB"})),
    ] {
        let Make::Stage(make) = Registry::linked().get(Kind::Stage, name).unwrap().make else {
            panic!()
        };
        let mut stage = make(opt.clone()).unwrap();
        let mut out = 0;
        let go = Instant::now();
        for b in &batches {
            let mut c = StageContext::new(&channels, Some(0));
            match &mut stage {
                Stage::Map(m) => out += m.apply(b.clone(), &mut c).unwrap().len(),
                Stage::Fold(f) => {
                    out += f.push(b.clone(), &mut c).unwrap().iter().map(|b| b.len()).sum::<usize>()
                }
            }
        }
        if let Stage::Fold(f) = &mut stage {
            let mut c = StageContext::new(&channels, Some(0));
            out += f.finish(&mut c).unwrap().iter().map(|b| b.len()).sum::<usize>();
        }
        println!("{name} {opt}: {:.1} ns/event, out {out}", go.elapsed().as_nanos() as f64 / n);
    }
}
