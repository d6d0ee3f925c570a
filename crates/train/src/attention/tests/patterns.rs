//! Patterns are exactly dense attention with everything else hidden, over lengths, blocks and padding.

use super::super::{BigBird, Kind, Layout};
use super::{Case, nothing};

/// Lengths that fit blocks and that do not, with and without padding.
fn lengths() -> Vec<(usize, Vec<usize>)> {
    let cases = [(1, vec![1]), (7, vec![7, 3]), (16, vec![16, 16]), (23, vec![23, 1, 17]), (33, vec![31, 33])];
    cases.to_vec()
}

fn compare(kind: &str, causal: bool, seen: impl Fn(usize, usize, usize) -> bool) {
    for (length, lengths) in lengths() {
        let case = Case::new(kind, length, &lengths, causal, length as u64);
        let dense = case.dense(&|i, j| seen(length, i, j) && (!causal || j <= i), &nothing);
        let apart = case.apart(&case.mixed(), &dense);
        assert!(apart < 2e-5, "{kind}, causal {causal}, {lengths:?}: {apart}");
    }
}

#[test]
fn full() {
    compare(r#"{"kind":"full"}"#, false, |_, _, _| true);
    compare(r#"{"kind":"full"}"#, true, |_, _, _| true);
}

#[test]
fn local() {
    for (block, before, after) in [(1, 0, 0), (4, 0, 0), (5, 1, 0), (8, 1, 1), (3, 2, 4), (64, 1, 1)] {
        let kind = format!(r#"{{"kind":"local","block":{block},"before":{before},"after":{after}}}"#);
        for causal in [false, true] {
            compare(&kind, causal, |length, i, j| {
                let size = block.min(length);
                j / size + before >= i / size && j / size <= i / size + after
            });
        }
    }
}

#[test]
fn strided_and_fixed() {
    for stride in [1, 4, 6, 40] {
        for causal in [false, true] {
            let kind = format!(r#"{{"kind":"strided","stride":{stride}}}"#);
            compare(&kind, causal, |length, i, j| {
                let stride = stride.min(length);
                i.abs_diff(j) < stride || i.abs_diff(j).is_multiple_of(stride)
            });
            let summaries = stride.min(2);
            let kind = format!(r#"{{"kind":"fixed","stride":{stride},"summaries":{summaries}}}"#);
            compare(&kind, causal, |length, i, j| {
                let size = stride.min(length);
                i / size == j / size || j % size >= size - summaries.min(size)
            });
        }
    }
}

#[test]
fn longformer() {
    for (window, globals) in [(2, 0), (8, 0), (6, 2), (10, 1), (100, 3)] {
        let kind = format!(r#"{{"kind":"longformer","window":{window},"globals":{globals}}}"#);
        for causal in [false, true].into_iter().take(if globals == 0 { 2 } else { 1 }) {
            let reach = |length: usize| (window / 2).min(length);
            compare(&kind, causal, |length, i, j| i.abs_diff(j) <= reach(length) || i < globals || j < globals);
        }
    }
}

#[test]
fn bigbird() {
    for (block, random, globals) in [(2, 1, 1), (4, 2, 1), (3, 3, 0), (50, 1, 1)] {
        let kind = BigBird { block, random, globals, seed: 5 };
        let text = serde_json::to_string(&Kind::BigBird(kind.clone())).unwrap();
        compare(&text, false, |length, i, j| {
            let size = block.min(length);
            let lists = kind.looked_at(length.div_ceil(size), length.div_ceil(size));
            assert!(lists.iter().all(|list| list.len() <= 3 + random));
            let first = globals * size;
            i < first || j < first || lists[i / size].contains(&(j / size))
        });
    }
}

#[test]
fn axial_and_image() {
    for columns in [1, 4, 7] {
        let kind = format!(r#"{{"kind":"axial","columns":{columns}}}"#);
        for causal in [false, true] {
            compare(&kind, causal, |length, i, j| {
                let columns = columns.min(length);
                i / columns == j / columns || i % columns == j % columns
            });
        }
    }
    for (columns, block) in [(4, 2), (6, 2), (6, 3), (4, 1)] {
        let kind = format!(r#"{{"kind":"image","columns":{columns},"block":{block}}}"#);
        for causal in [false, true] {
            compare(&kind, causal, |_, i, j| {
                let square = |at: usize| (at / columns / block, at % columns / block);
                let ((a, b), (c, d)) = (square(i), square(j));
                a.abs_diff(c) <= 1 && b.abs_diff(d) <= 1
            });
        }
    }
}

/// Tokens before a picture are none of its pixels: they see all and are seen by all. Its rows are as the task says, or the root
/// of the longest.
#[test]
fn pictures_begin_after_what_is_pooled() {
    for (length, lengths, before) in [(17, [17, 9], 1), (23, [20, 23], 2), (18, [18, 2], 1)] {
        for (columns, asked) in [(6, Some(6)), (4, None), (6, None)] {
            // 4 x 4 pixels at most are 4 a row.
            let longest = if columns == 4 { 16 + before } else { 30 + before };
            let near = |i: usize, j: usize, grid: &dyn Fn(usize, usize) -> bool| {
                i < before || j < before || grid(i - before, j - before)
            };
            for causal in [false, true] {
                let given = asked.map_or(String::new(), |columns| format!(r#","columns":{columns}"#));
                let mut case = Case::new(&format!(r#"{{"kind":"axial"{given}}}"#), length, &lengths, causal, 3);
                case.layout = Layout { before, columns: None, longest };
                let cross = |i: usize, j: usize| i / columns == j / columns || i % columns == j % columns;
                let dense = case.dense(&|i, j| near(i, j, &cross) && (!causal || j <= i), &nothing);
                let apart = case.apart(&case.mixed(), &dense);
                assert!(apart < 2e-5, "axial of {columns}, causal {causal}, {lengths:?}: {apart}");
            }
            let mut case = Case::new(r#"{"kind":"image","block":2}"#, length, &lengths, false, 3);
            case.layout = Layout { before, columns: Some(columns), longest };
            let squares = |i: usize, j: usize| {
                let square = |at: usize| (at / columns / 2, at % columns / 2);
                let ((a, b), (c, d)) = (square(i), square(j));
                a.abs_diff(c) <= 1 && b.abs_diff(d) <= 1
            };
            let apart = case.apart(&case.mixed(), &case.dense(&|i, j| near(i, j, &squares), &nothing));
            assert!(apart < 2e-5, "image of {columns}, {lengths:?}: {apart}");
        }
    }
    let kind: Kind = serde_json::from_str(r#"{"kind":"image","block":5}"#).unwrap();
    assert!(kind.mechanism().fits(Some(32)).unwrap_err().to_string().contains("32 pixels"));
}

/// ETC's pattern with the scores of its labels.
#[test]
fn etc() {
    let (globals, radius, labels) = (2, 3, 2isize);
    let kind = r#"{"kind":"etc","globals":2,"radius":3,"labels":2}"#;
    for (length, lengths) in lengths().into_iter().filter(|(length, _)| *length > 2) {
        let lengths: Vec<usize> = lengths.into_iter().map(|real| real.max(globals)).collect();
        let case = Case::new(kind, length, &lengths, false, 3);
        let [query, ..] = case.projected();
        let rows = case.tensor("labels");
        let width = case.sizes.head_width();
        let added = |group: usize, i: usize, j: usize| {
            let label = match (i < globals, j < globals) {
                (true, true) => 2 * labels as usize + 3,
                (true, false) => 2 * labels as usize + 2,
                (false, true) => 2 * labels as usize + 1,
                _ => ((j as isize - i as isize).clamp(-labels, labels) + labels) as usize,
            };
            let count = 2 * labels as usize + 4;
            let row = &rows[((group % 2) * count + label) * width..][..width];
            let q = &query[(group * length + i) * width..][..width];
            q.iter().zip(row).map(|(a, b)| a * b).sum::<f64>() / (width as f64).sqrt()
        };
        let dense = case.dense(&|i, j| i < globals || j < globals || i.abs_diff(j) <= radius.min(length), &added);
        let apart = case.apart(&case.mixed(), &dense);
        assert!(apart < 2e-5, "{lengths:?}: {apart}");
    }
}

/// Transformer-XL is its window with its scores by distance.
#[test]
fn transformer_xl() {
    for (length, lengths) in lengths() {
        for causal in [false, true] {
            let case = Case::new(r#"{"kind":"transformer-xl","segment":4,"memory":2}"#, length, &lengths, causal, 8);
            let [query, ..] = case.projected();
            let map = case.tensor("position.weight");
            let width = case.sizes.head_width();
            let added = |group: usize, i: usize, j: usize| {
                let wave = crate::sines::sines(i as f64 - j as f64, 8);
                let row = |at: usize| -> f64 {
                    let output = (group % 2) * width + at;
                    (0..8).map(|input| map[output * 8 + input] * f64::from(wave[input])).sum()
                };
                let q = &query[(group * length + i) * width..][..width];
                (0..width).map(|at| q[at] * row(at)).sum::<f64>() / (width as f64).sqrt()
            };
            let seen = |i: usize, j: usize| j / 4 <= i / 4 && j / 4 + 2 >= i / 4 && (!causal || j <= i);
            let apart = case.apart(&case.mixed(), &case.dense(&seen, &added));
            assert!(apart < 2e-5, "{lengths:?} causal {causal}: {apart}");
        }
    }
}

/// Sign matching is dense attention over the keys that agree with the vote; the causal form keeps one of the first quarter, and
/// who sees none of the keys keeps its own value.
#[test]
fn sign_matching() {
    for ((length, lengths), causal) in lengths().into_iter().flat_map(|case| [(case.clone(), false), (case, true)]) {
        let case = Case::new(r#"{"kind":"sign-matching","keys":5}"#, length, &lengths, causal, 4);
        let [query, key, value] = case.projected();
        let width = case.sizes.head_width();
        let mut apart: f64 = 0.0;
        let mixed = case.mixed();
        for group in 0..case.groups() {
            let real = case.real(group);
            let positive = |x: &Vec<f64>, at: usize, column: usize| x[(group * length + at) * width + column] >= 0.0;
            // Half of the queries or more.
            let vote: Vec<bool> = (0..width)
                .map(|column| 2 * (0..real).filter(|at| positive(&query, *at, column)).count() >= real)
                .collect();
            let mut keys: Vec<usize> = (0..real).collect();
            keys.sort_by_key(|at| (0..width).filter(|column| positive(&key, *at, *column) != vote[*column]).count());
            if let Some(place) = keys.iter().position(|at| *at < real / 4).filter(|_| causal) {
                let first = keys.remove(place);
                keys.insert(0, first);
            }
            keys.truncate(5);
            let dense = case.dense(&|i, j| keys.contains(&j) && (!causal || j <= i), &nothing);
            for at in 0..real * width {
                let sees = !causal || keys.iter().any(|key| *key <= at / width);
                let at = group * length * width + at;
                apart = apart.max((mixed[at] - if sees { dense[at] } else { value[at] }).abs());
            }
        }
        assert!(apart < 2e-5, "{lengths:?}: {apart}");
    }
}
