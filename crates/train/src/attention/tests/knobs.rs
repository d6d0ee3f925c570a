//! Knobs that make no sense are refused in one line; large ones that do are as good as the sequence's length.

use super::super::{Kind, Sizes, catalogue, counted};
use super::{Case, nothing};
use serde_json::{Value, json};

const SIZES: Sizes = Sizes { length: 64, width: 8, attention_width: 8, heads: 2 };

/// Every number of every mechanism, set to what nobody means.
#[test]
fn absurd_knobs_are_refused() {
    let mut tried = 0;
    for (name, kind) in catalogue().unwrap() {
        let Value::Object(knobs) = serde_json::to_value(&kind).unwrap() else { panic!("{name}: no object") };
        kind.check(&SIZES).unwrap();
        for (knob, value) in knobs.iter().filter(|(knob, value)| value.is_number() && *knob != "seed") {
            let absurd = match value.is_u64() {
                true => vec![json!(u64::MAX), json!(1u64 << 63), json!((1u64 << 63) - 1), json!(3_000_000_000u64)],
                false => vec![json!(0.0), json!(-1.0), json!(1e-300), json!(1e300)],
            };
            for absurd in absurd {
                let mut knobs = knobs.clone();
                knobs.insert(knob.clone(), absurd.clone());
                let kind: Kind = serde_json::from_value(Value::Object(knobs)).unwrap();
                let error = kind.check(&SIZES).expect_err(&format!("{name}: {knob} {absurd}")).to_string();
                assert!(error.contains(knob) && !error.contains('\n'), "{name}: {error}");
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

/// Numbers that a mechanism cannot do without.
#[test]
fn nothing_is_too_little() {
    let kinds = [
        r#"{"kind":"sinkhorn","block":4,"rounds":0,"temperature":1.0}"#,
        r#"{"kind":"local","block":0}"#,
        r#"{"kind":"longformer","window":1}"#,
        r#"{"kind":"image","block":3,"columns":8}"#,
        r#"{"kind":"reformer","buckets":3,"hashes":1,"chunk":4}"#,
        r#"{"kind":"compressive","segment":6,"memory":1,"compressed":1,"rate":4}"#,
        r#"{"kind":"long-short","kernel":4}"#,
    ];
    for text in kinds {
        let kind: Kind = serde_json::from_str(text).unwrap();
        assert!(kind.check(&SIZES).is_err(), "{text}");
    }
    // Tensors that no machine holds, of knobs that are possible for themselves.
    let large: Kind = serde_json::from_str(r#"{"kind":"linformer","rank":1048576}"#).unwrap();
    large.check(&SIZES).unwrap();
    assert!(large.check(&Sizes { length: 4096, ..SIZES }).unwrap_err().to_string().contains("smaller knobs"));
}

/// As large as they may be, windows and blocks are full attention.
#[test]
fn large_windows_are_full() {
    let most = 1 << 20;
    let kinds = [
        json!({"kind": "local", "block": 2, "before": most, "after": most}),
        json!({"kind": "local", "block": most, "before": most, "after": most}),
        json!({"kind": "strided", "stride": most}),
        json!({"kind": "fixed", "stride": most, "summaries": most}),
        json!({"kind": "longformer", "window": most, "globals": most}),
        json!({"kind": "big-bird", "block": most, "random": most, "globals": most}),
        json!({"kind": "big-bird", "block": 1, "random": most, "globals": 0}),
        json!({"kind": "axial", "columns": most}),
        json!({"kind": "sign-matching", "keys": most}),
        json!({"kind": "sinkhorn", "block": most, "rounds": 1, "temperature": 1.0}),
    ];
    for kind in kinds {
        let case = Case::new(&kind.to_string(), 9, &[9, 4], false, 2);
        let apart = case.apart(&case.mixed(), &case.dense(&|_, _| true, &nothing));
        assert!(apart < 2e-5, "{kind}: {apart}");
    }
    for kind in ["transformer-xl", "compressive"] {
        let of = |segment: usize, memory: usize| {
            let mut knobs = json!({"kind": kind, "segment": segment, "memory": memory});
            if kind == "compressive" {
                (knobs["compressed"], knobs["rate"]) = (json!(most), json!(2));
            }
            Case::new(&knobs.to_string(), 9, &[9, 4], false, 2).mixed()
        };
        let case = Case::new(r#"{"kind":"full"}"#, 9, &[9, 4], false, 2);
        assert!(case.apart(&of(most, most), &of(10, 0)) < 2e-5, "{kind}");
    }
}

/// Rows of a picture that are longer than all its pixels are one row, and take no more work than one that just holds them.
#[test]
fn long_rows_of_pictures_are_one_row() {
    let of = |columns: usize| {
        let kind = json!({"kind": "image", "block": 2, "columns": columns});
        let case = Case::new(&kind.to_string(), 9, &[9, 4], false, 2);
        (case.mixed(), counted(|| case.mixed()).1)
    };
    assert_eq!(of(1 << 20), of(10));
}
