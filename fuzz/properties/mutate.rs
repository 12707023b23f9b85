//! Inputs without a fuzzer: seeds, bent at random, for so long. Coverage guides it only through what is kept: the seeds. The
//! same properties run under libFuzzer (`fuzz/run`); this form needs nothing but the stable toolchain.

use std::time::{Duration, Instant};

/// How long: a moment, a minute where everything is run in full, or as many seconds as are asked for.
pub(crate) fn span() -> Duration {
    let asked = std::env::var("COUNTERSIGN_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let full = std::env::var_os("COUNTERSIGN_TEST_LONG").is_some();
    match asked {
        Some(seconds) => Duration::from_secs(seconds),
        None if full => Duration::from_secs(60),
        None => Duration::from_millis(1500),
    }
}

/// Runs a check on bent seeds; the input that fails is shown.
pub(crate) fn run(seeds: &[&[u8]], check: fn(&[u8])) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let began = Instant::now();
    let mut count = 0u64;
    for seed in seeds {
        check(seed);
    }
    let span = span();
    while began.elapsed() < span {
        let mut input = seeds[dice.below(seeds.len())].to_vec();
        for _ in 0..=dice.below(6) {
            bend(&mut dice, &mut input, seeds);
        }
        let bent = input.clone();
        let failed = std::panic::catch_unwind(move || check(&bent)).is_err();
        assert!(!failed, "after {count} inputs: {:?}", String::from_utf8_lossy(&input));
        count += 1;
    }
    assert!(count > 100, "only {count} inputs");
}

/// Pieces that matter to JSON and to headers.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b",",
    b":",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00",
    b"null",
    b"true",
    b"1e999",
    b"-0",
    b"9007199254740993",
    b"\xff",
    b"\xed\xa0\x80",
    b"\r\n",
    b"\0",
    b"=?base64?",
    b"?=",
    b"\"id\":",
    b"\"method\":",
    b"\"params\":{}",
    b"\"jsonrpc\":\"2.0\"",
    b"0.1",
    b"E+",
    b" ",
    b"\t",
    b"\xe2\x80\xae",
];

fn bend(dice: &mut Dice, input: &mut Vec<u8>, seeds: &[&[u8]]) {
    let at = dice.below(input.len() + 1);
    let end = (at + dice.below(12)).min(input.len());
    match dice.below(7) {
        0 => {
            input.drain(at..end);
        }
        1 => {
            let piece = PIECES[dice.below(PIECES.len())];
            input.splice(at..at, piece.iter().copied());
        }
        2 => {
            let piece = PIECES[dice.below(PIECES.len())];
            input.splice(at..end, piece.iter().copied());
        }
        3 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        4 => {
            let copy = input[at..end].to_vec();
            input.splice(at..at, copy);
        }
        5 => {
            let other = seeds[dice.below(seeds.len())];
            let from = dice.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => input.truncate(at),
    }
}

/// Numbers that are the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}
