//! Random requests to a disk, compared byte by byte with a shadow copy.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_nbd::{Command, ReplyStyle, Request};

use super::Client;

/// Random requests of one client: their range, alignment and number.
pub struct Plan {
    pub seed: u64,
    /// First byte of the client's part of the disk.
    pub start: u64,
    pub size: u64,
    /// Alignment of offsets and lengths in bytes.
    pub block: u64,
    /// Maximum length of a request in blocks.
    pub blocks_max: u64,
    pub depth: usize,
    pub requests: usize,
}

struct Pending {
    request: Request,
    expected: Vec<Option<u8>>,
}

/// Runs the plan, then reads everything back.
pub fn run(client: &mut Client, plan: &Plan) {
    let mut rng = Pcg64::seed_from_u64(plan.seed);
    // `None`: trimmed, so that reads may return anything.
    let mut shadow: Vec<Option<u8>> = vec![None; plan.size as usize];
    let mut pending: Vec<Pending> = Vec::new();
    let mut sent = 0;
    while sent < plan.requests || !pending.is_empty() {
        if sent < plan.requests && pending.len() < plan.depth {
            sent += 1;
            let structured = client.style() == ReplyStyle::Structured;
            let request = choose(&mut rng, plan, sent as u64, structured);
            let overlaps = |p: &Pending| {
                let (a, b) = (&p.request, &request);
                a.offset < b.offset + u64::from(b.len) && b.offset < a.offset + u64::from(a.len)
            };
            if pending.iter().any(overlaps) {
                continue;
            }
            send(client, &mut rng, plan, &mut shadow, &mut pending, request);
            continue;
        }
        check(client, &mut pending);
    }
    for offset in (0..plan.size).step_by(64 << 10) {
        let len = (plan.size - offset).min(64 << 10) as u32;
        let request = Request {
            cookie: u64::MAX,
            command: Command::Read { df: false },
            fua: false,
            offset: plan.start + offset,
            len,
        };
        send(client, &mut rng, plan, &mut shadow, &mut pending, request);
        check(client, &mut pending);
    }
}

fn choose(rng: &mut Pcg64, plan: &Plan, cookie: u64, structured: bool) -> Request {
    let blocks = plan.size / plan.block;
    let len = rng.random_range(1..=plan.blocks_max.min(blocks));
    let at = rng.random_range(0..=blocks - len);
    let command = match rng.random_range(0..20) {
        0..8 => Command::Read {
            df: structured && rng.random_bool(0.2),
        },
        8..16 => Command::Write,
        16 => Command::Flush,
        17 => Command::Trim,
        18 => Command::WriteZeroes {
            no_hole: rng.random_bool(0.5),
            fast_zero: false,
        },
        _ => Command::Cache,
    };
    let flush = command == Command::Flush;
    Request {
        cookie,
        command,
        fua: rng.random_bool(0.1) && !matches!(command, Command::Read { .. } | Command::Cache),
        offset: if flush {
            0
        } else {
            plan.start + at * plan.block
        },
        len: if flush { 0 } else { (len * plan.block) as u32 },
    }
}

fn send(
    client: &mut Client,
    rng: &mut Pcg64,
    plan: &Plan,
    shadow: &mut [Option<u8>],
    pending: &mut Vec<Pending>,
    request: Request,
) {
    let from = request.offset.saturating_sub(plan.start) as usize;
    let range = from..from + request.len as usize;
    let mut payload = Vec::new();
    let mut expected = Vec::new();
    match request.command {
        Command::Read { .. } => expected = shadow[range].to_vec(),
        Command::Write => {
            payload = vec![0; request.len as usize];
            rng.fill_bytes(&mut payload);
            shadow[range]
                .iter_mut()
                .zip(&payload)
                .for_each(|(s, b)| *s = Some(*b));
        }
        Command::WriteZeroes { .. } => shadow[range].fill(Some(0)),
        Command::Trim => shadow[range].fill(None),
        _ => {}
    }
    client.send(request, &payload);
    pending.push(Pending { request, expected });
}

fn check(client: &mut Client, pending: &mut Vec<Pending>) {
    let answer = client.receive();
    let at = pending
        .iter()
        .position(|p| p.request.cookie == answer.cookie)
        .expect("every reply answers a request, once");
    let Pending { request, expected } = pending.swap_remove(at);
    let data = answer.result.unwrap_or_else(|e| panic!("{request:?}: {e}"));
    assert_eq!(data.len(), expected.len(), "{request:?}");
    for (i, (got, want)) in data.iter().zip(&expected).enumerate() {
        assert!(
            want.is_none_or(|w| w == *got),
            "byte {i} of {request:?}: {got} for {want:?}"
        );
    }
}
