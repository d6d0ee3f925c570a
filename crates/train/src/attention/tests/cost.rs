//! The work that is done, counted, grows with the length as claimed.

use super::super::{Sizes, catalogue, counted};
use super::Case;

/// Operations of a mechanism alone, without the maps to queries, keys and values.
fn work(kind: &super::Kind, length: usize) -> f64 {
    let sizes = Sizes { length, width: 8, attention_width: 8, heads: 2 };
    let case = Case::of(kind.clone(), sizes, &[length], false, 1);
    counted(|| case.mixed()).1 as f64
}

/// The exponent between lengths of 512 and 2048, on a logarithmic scale.
fn exponent(kind: &super::Kind) -> f64 {
    (work(kind, 2048) / work(kind, 512)).ln() / 4f64.ln()
}

#[test]
fn exponents_are_as_claimed() {
    for (name, kind) in catalogue().unwrap() {
        let found = exponent(&kind);
        let claimed = match name.as_str() {
            "full" | "memory-compressed" | "long-short" | "monte-carlo" | "graded" => 1.9..2.05,
            _ if name.starts_with("synthesizer") => 1.8..2.05,
            // At a fixed stride, row or number of clusters a part grows as the square: n / stride keys each.
            "sparse-strided" | "sparse-fixed" | "axial" | "sinkhorn" => 1.0..1.6,
            "routing" => 1.3..2.05,
            // The inverse of the landmarks' matrix costs the same at every length.
            "nystrom" => 0.0..1.1,
            _ => 0.88..1.12,
        };
        assert!(claimed.contains(&found), "{name}: n^{found:.3}");
    }
}

/// With a stride or as many clusters as the root of the length, O(n √n).
#[test]
fn roots_of_the_length() {
    let at = |length: usize, kind: &dyn Fn(usize) -> String| {
        let root = (length as f64).sqrt().round() as usize;
        work(&serde_json::from_str(&kind(root)).unwrap(), length)
    };
    let kinds: [&dyn Fn(usize) -> String; 4] = [
        &|root| format!(r#"{{"kind":"strided","stride":{root}}}"#),
        &|root| format!(r#"{{"kind":"fixed","stride":{root},"summaries":1}}"#),
        &|root| format!(r#"{{"kind":"axial","columns":{root}}}"#),
        &|root| format!(r#"{{"kind":"routing","clusters":{root},"rounds":1}}"#),
    ];
    for kind in kinds {
        let found = (at(4096, kind) / at(256, kind)).ln() / 16f64.ln();
        assert!((1.4..1.6).contains(&found), "{}: n^{found:.3}", kind(0));
    }
}
