//! The work that is done, counted, grows with the length as claimed: arithmetic, and numbers that are made or gathered, so that
//! no n x n mask hides.

use super::super::{Kind, Longformer, Nystrom, Sizes, Work, catalogue, counted};
use super::Case;

/// What a mechanism does, without the maps to queries, keys and values.
fn work(kind: &Kind, length: usize, causal: bool) -> Work {
    let sizes = Sizes { length, width: 8, attention_width: 8, heads: 2 };
    let case = Case::of(kind.clone(), sizes, &[length - 3], causal, 1);
    counted(|| case.mixed_from(usize::MAX)).1
}

/// The exponent between two lengths, on a logarithmic scale.
fn exponent(few: u64, many: u64, times: f64) -> f64 {
    (many as f64 / few as f64).ln() / times.ln()
}

/// Kinds whose scores are n x n, or n x n over a factor.
fn is_dense(name: &str) -> bool {
    let dense = ["full", "memory-compressed", "long-short", "monte-carlo", "graded"];
    dense.contains(&name) || name.starts_with("synthesizer")
}

/// In both forms, where there are two.
#[test]
fn exponents_are_as_claimed() {
    for (name, kind) in catalogue().unwrap() {
        let kind = match kind {
            // The inverse of the landmarks' matrix costs the same at every length; with few landmarks it is little.
            Kind::Nystrom(known) => Kind::Nystrom(Nystrom { landmarks: 8, ..known }),
            other => other,
        };
        for (kind, causal) in forms(kind) {
            let (few, many) = (work(&kind, 1024, causal), work(&kind, 4096, causal));
            let operations = exponent(few.operations, many.operations, 4.0);
            // Blocks in a window of three; the causal form has none after its own.
            let window = if causal { 2.0 * 64.0 } else { 3.0 * 64.0f64 };
            let claimed = match name.as_str() {
                _ if is_dense(&name) => 1.98..2.01,
                // By its knobs, the keys of a token at 4096 tokens over those at 1024.
                "sparse-strided" => near(1.0 + ((window + 64.0) / (window + 16.0)).log(4.0)),
                "sparse-fixed" => near(1.0 + ((64.0 + 4.0 * 64.0) / (64.0 + 4.0 * 16.0f64)).log(4.0)),
                "axial" => near(1.5),
                // Half of the work is among the 16 clusters' tokens, which grows as the square, and sorting blocks too.
                "routing" => near(1.70),
                "sinkhorn" => near(1.17),
                // Blocks that are filled up, global queries, products that are the same at every length.
                "etc" | "softmax-network" | "nystrom" => 0.94..1.01,
                // What comes before is summed in as many steps as there are bits in the number of blocks.
                "performer" if causal => 1.0..1.02,
                _ => 0.99..1.01,
            };
            assert!(claimed.contains(&operations), "{name} causal {causal}: n^{operations:.3}");
        }
    }
}

/// A mechanism as it is, and in its causal form if it has one: Longformer's is without global tokens.
fn forms(kind: Kind) -> Vec<(Kind, bool)> {
    let past = match kind.clone() {
        Kind::Longformer(known) => Kind::Longformer(Longformer { globals: 0, ..known }),
        other => other,
    };
    let causal = past.mechanism().causal();
    [(kind, false), (past, true)].into_iter().take(1 + usize::from(causal)).collect()
}

/// Every round of inversion has four products of the landmarks' matrices: at 128 landmarks and heads of width 32 six rounds are
/// more than all else up to about 3000 tokens.
#[test]
fn inversion_is_counted() {
    let of = |rounds: usize| {
        let kind = Kind::Nystrom(Nystrom { landmarks: 128, rounds });
        work(&kind, 1024, false).operations
    };
    assert_eq!(of(7) - of(6), 2 * 4 * 2 * 128u64.pow(3));
}

/// Every round of hashing asks of every key in its windows in which other rounds it is shown: that grows as the square.
#[test]
fn comparisons_are_counted() {
    let of = |hashes: usize| {
        let kind = format!(r#"{{"kind":"reformer","buckets":4,"hashes":{hashes},"chunk":32}}"#);
        work(&serde_json::from_str(&kind).unwrap(), 1024, false).operations
    };
    let pairs = 2 * 1024 * 2 * 32;
    assert_eq!((of(4) - of(3)) - (of(3) - of(2)), 2 * 4 * pairs);
}

/// The convolution of long-short range attention: a multiplication and an addition per place, token and channel of one head.
#[test]
fn convolutions_are_counted() {
    let of = |kernel: usize| {
        let kind = format!(r#"{{"kind":"long-short","kernel":{kernel}}}"#);
        work(&serde_json::from_str(&kind).unwrap(), 1024, true).operations
    };
    // Two softmaxes of two more weights are there too.
    let more = of(9) - of(7);
    assert!((2 * 2 * 1024 * 4..2 * 2 * 1024 * 4 + 100).contains(&more), "{more}");
}

/// About as much.
fn near(exponent: f64) -> std::ops::Range<f64> {
    exponent - 0.02..exponent + 0.02
}

/// Of masks, gathers and what is sorted there is no more than arithmetic asks for: sparse kinds make nothing that is n x n, in
/// neither form. At 4096 tokens fixed blocks have a mask of all pairs of blocks, 4 tokens of each.
#[test]
fn nothing_dense_is_made() {
    for (name, kind) in catalogue().unwrap().into_iter().filter(|(name, _)| !is_dense(name)) {
        for (kind, causal) in forms(kind) {
            let (few, many) = (work(&kind, 1024, causal), work(&kind, 4096, causal));
            let moved = exponent(few.moved, many.moved, 4.0);
            let most = if name == "sparse-fixed" { 1.36 } else { 1.01 };
            assert!(moved < most, "{name} causal {causal}: n^{moved:.3}");
            assert!(many.moved < 4096 * 4096 / 16, "{name} causal {causal}: {many:?}");
        }
    }
    let full = catalogue().unwrap().into_iter().find(|(name, _)| name == "full").unwrap().1;
    assert!(work(&full, 1024, true).moved > 1024 * 1024, "a dense mask is not counted");
}

/// With a stride or as many clusters as the root of the length, O(n √n).
#[test]
fn roots_of_the_length() {
    let at = |length: usize, kind: &dyn Fn(usize) -> String| {
        let root = (length as f64).sqrt().round() as usize;
        work(&serde_json::from_str(&kind(root)).unwrap(), length, false)
    };
    let kinds: [&dyn Fn(usize) -> String; 4] = [
        &|root| format!(r#"{{"kind":"strided","stride":{root}}}"#),
        &|root| format!(r#"{{"kind":"fixed","stride":{root},"summaries":1}}"#),
        &|root| format!(r#"{{"kind":"axial","columns":{root}}}"#),
        &|root| format!(r#"{{"kind":"routing","clusters":{root},"rounds":1}}"#),
    ];
    for kind in kinds {
        let (few, many) = (at(256, kind), at(4096, kind));
        let found = exponent(few.operations, many.operations, 16.0);
        let moved = exponent(few.moved, many.moved, 16.0);
        assert!(near(1.5).contains(&found) && moved < 1.5, "{}: n^{found:.3}, n^{moved:.3}", kind(0));
    }
}
