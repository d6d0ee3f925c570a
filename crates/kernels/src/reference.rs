//! The same computations, slow and obvious. Tests compare the fast kernels with these; nothing else should call them, but
//! for training, which hides the keys that [`chosen`] leaves out.

use crate::attention::{Attention, By, Choice, ScoreBias, Span};
use crate::{Activation, Epilogue, Rows, RowsMut};

/// Error function to double accuracy (series for small, continued fraction for large arguments).
pub fn erf(x: f64) -> f64 {
    let z = x.abs();
    let value = if z < 3.0 {
        // erf z = 2/sqrt(pi) * sum (-1)^n z^(2n+1) / (n! (2n+1))
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= -z * z / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let mut fraction = z;
        for n in (1..60).rev() {
            fraction = z + (n as f64 / 2.0) / fraction;
        }
        1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

/// The activation in double precision.
pub fn activate(activation: Activation, x: f32) -> f32 {
    let x = x as f64;
    let y = match activation {
        Activation::Identity => x,
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Clip => x.clamp(-1.0, 1.0),
    };
    y as f32
}

/// The activation's derivative in double precision.
pub fn slope(activation: Activation, x: f32) -> f32 {
    let x = x as f64;
    let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let y = match activation {
        Activation::Identity => 1.0,
        Activation::Gelu => 0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) + x * density(x),
        Activation::GeluTanh => {
            let c = (2.0 / std::f64::consts::PI).sqrt();
            let t = (c * (x + 0.044715 * x * x * x)).tanh();
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3.0 * 0.044715 * x * x)
        }
        Activation::Relu => f64::from(x > 0.0),
        Activation::Tanh => 1.0 - x.tanh().powi(2),
        Activation::Silu => {
            let s = 1.0 / (1.0 + (-x).exp());
            s * (1.0 + x * (1.0 - s))
        }
        Activation::Clip => f64::from(x.abs() < 1.0),
    };
    y as f32
}

/// `out = activation(a Wᵀ + bias) + residual · scale`, weights `[outputs, inputs]`.
pub fn gemm(a: Rows, weights: &[f32], outputs: usize, epilogue: &Epilogue, mut out: RowsMut) {
    let inputs = a.width();
    let mut row = vec![0.0; inputs];
    for r in 0..a.count() {
        a.read_row(r, &mut row);
        for o in 0..outputs {
            let dot: f64 =
                row.iter().zip(&weights[o * inputs..(o + 1) * inputs]).map(|(x, w)| *x as f64 * *w as f64).sum();
            let mut y = dot as f32 + epilogue.bias.map_or(0.0, |b| b[o]);
            y = activate(epilogue.activation, y);
            if let Some(residual) = epilogue.residual {
                y += residual.get(r, o) * epilogue.residual_scale.map_or(1.0, |scale| scale[o]);
            }
            out.set(r, o, y);
        }
    }
}

/// `out = (x - mean) / sqrt(var + eps) * weight + bias`.
pub fn layer_norm(x: Rows, weight: &[f32], bias: &[f32], eps: f32, mut out: RowsMut) {
    let n = x.width() as f64;
    for r in 0..x.count() {
        let values: Vec<f64> = (0..x.width()).map(|c| x.get(r, c) as f64).collect();
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        for (c, v) in values.iter().enumerate() {
            let y = (v - mean) / (variance + eps as f64).sqrt();
            out.set(r, c, (y * weight[c] as f64) as f32 + bias[c]);
        }
    }
}

/// Softmax in place.
pub fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    let sum: f64 = x.iter().map(|v| (*v as f64 - max).exp()).sum();
    for v in x {
        *v = ((*v as f64 - max).exp() / sum) as f32;
    }
}

/// The probabilities of one query of a span, one per key.
pub fn probabilities(
    attention: &Attention,
    q: Rows,
    k: Rows,
    (s, span): (usize, &Span),
    head: usize,
    i: usize,
) -> Vec<f32> {
    let (keys, width, row) = (span.keys.len(), attention.head_width, span.queries.start + i);
    let column = |c: usize| head * width + c;
    let position = attention.position(span, i);
    let mut extra = vec![0.0; keys];
    match attention.bias {
        ScoreBias::None => {}
        ScoreBias::ByDistance { table, reach } => {
            for (j, e) in extra.iter_mut().enumerate() {
                *e = table[head * (2 * reach + 1) + j + reach - position];
            }
        }
        ScoreBias::ByKey(numbers) => extra.copy_from_slice(&numbers[span.keys.clone()]),
        ScoreBias::PerQuery(fill) => fill(s, head, i, &mut extra),
    }
    let mut scores: Vec<f32> = (0..keys)
        .map(|j| {
            if !attention.sees(span, position, j) {
                return f32::NEG_INFINITY;
            }
            let dot: f32 = (0..width).map(|c| q.get(row, column(c)) * k.get(span.keys.start + j, column(c))).sum();
            dot * attention.scale + extra[j]
        })
        .collect();
    softmax(&mut scores);
    scores
}

/// Attention with all scores of one query at a time.
pub fn attend(attention: &Attention, q: Rows, k: Rows, v: Rows, spans: &[Span], mut out: RowsMut) {
    let width = attention.head_width;
    for (s, span) in spans.iter().enumerate() {
        for head in 0..attention.heads {
            for (i, row) in span.queries.clone().enumerate() {
                let weights = probabilities(attention, q, k, (s, span), head, i);
                for c in head * width..(head + 1) * width {
                    let sum: f32 = weights.iter().enumerate().map(|(j, p)| p * v.get(span.keys.start + j, c)).sum();
                    out.set(row, c, sum);
                }
            }
        }
    }
}

/// The keys that each query of a span and head sees when keys are chosen, ascending.
pub fn chosen(attention: &Attention, choice: &Choice, q: Rows, k: Rows, span: &Span, head: usize) -> Vec<Vec<usize>> {
    let (n, d) = (span.keys.len(), attention.head_width);
    let keep = (choice.keep)(n).max(1).min(n);
    let part = |rows: &Rows, row: usize| -> Vec<f32> { (0..d).map(|c| rows.get(row, head * d + c)).collect() };
    let queries: Vec<Vec<f32>> = span.queries.clone().map(|row| part(&q, row)).collect();
    let keys: Vec<Vec<f32>> = span.keys.clone().map(|row| part(&k, row)).collect();
    let pinned = |key: usize| choice.pinned.get(span.keys.start + key).copied().unwrap_or(false);
    let signs: Vec<bool> = (0..d).map(|c| 2 * queries.iter().filter(|q| q[c] > 0.0).count() >= queries.len()).collect();
    let score = |key: &Vec<f32>| match choice.by {
        By::Sign => key.iter().zip(&signs).filter(|(x, sign)| (**x > 0.0) != **sign).count() as f32,
        By::Norm => -key.iter().map(|x| x * x).sum::<f32>(),
        By::Value(threshold) => -(key.iter().filter(|x| x.abs() > threshold).count() as f32),
        By::Grouped => 0.0,
    };
    let scores: Vec<f32> = keys.iter().map(score).collect();
    let best = |mut among: Vec<usize>, keep: usize| {
        among.sort_by(|a, b| (!pinned(*a)).cmp(&!pinned(*b)).then(scores[*a].total_cmp(&scores[*b])).then(a.cmp(b)));
        among.truncate(keep);
        among
    };
    let first = if attention.causal && keep < n { best((0..n / 4).collect(), keep / 4) } else { Vec::new() };
    let rest = best((0..n).filter(|key| !first.contains(key)).collect(), keep - first.len());
    let common: Vec<usize> = (0..n).filter(|key| first.contains(key) || rest.contains(key)).collect();
    // The column of the first largest (or, turned around, smallest) number.
    let column = |x: &[f32], turn: f32| (0..d).fold(0, |most, c| if turn * x[c] > turn * x[most] { c } else { most });
    let grouped = |query: &[f32]| -> Vec<usize> {
        let of = |turn: f32| {
            let at = column(query, turn);
            let mut group: Vec<usize> = (0..n).filter(|key| column(&keys[*key], turn) == at).collect();
            group.sort_by(|a, b| keys[*b][at].abs().total_cmp(&keys[*a][at].abs()).then(a.cmp(b)));
            group.truncate(keep);
            group
        };
        let (largest, smallest) = (of(1.0), of(-1.0));
        (0..n).filter(|key| largest.contains(key) || smallest.contains(key) || pinned(*key)).collect()
    };
    let all = |(i, query): (usize, &Vec<f32>)| {
        let among = if choice.by == By::Grouped && keep < n { grouped(query) } else { common.clone() };
        among.into_iter().filter(|key| attention.sees(span, attention.position(span, i), *key)).collect()
    };
    queries.iter().enumerate().map(all).collect()
}

/// Attention over chosen keys, one query at a time.
pub fn attend_chosen(
    attention: &Attention,
    choice: &Choice,
    q: Rows,
    k: Rows,
    v: Rows,
    spans: &[Span],
    mut out: RowsMut,
) {
    let width = attention.head_width;
    for (s, span) in spans.iter().enumerate() {
        for head in 0..attention.heads {
            for (i, keys) in chosen(attention, choice, q, k, span, head).into_iter().enumerate() {
                let keys = if keys.is_empty() { vec![attention.position(span, i)] } else { keys };
                let all = probabilities(attention, q, k, (s, span), head, i);
                // In proportion to their exact probabilities.
                let total: f32 = keys.iter().map(|key| all[*key]).sum();
                for c in head * width..(head + 1) * width {
                    let sum: f32 = keys.iter().map(|key| all[*key] / total * v.get(span.keys.start + key, c)).sum();
                    out.set(span.queries.start + i, c, sum);
                }
            }
        }
    }
}

/// What one row of a staircase gets from its draws; `weight(k)` is the scaled weight of draw k.
pub fn drawn(
    x: Rows,
    row: usize,
    budget: usize,
    factor: f32,
    index: &[u32],
    floor: &[f32],
    mean: Option<&[f32]>,
    weight: impl Fn(usize) -> f32,
) -> f32 {
    let draw = |k: usize| {
        let i = index[k] as usize;
        let x = x.get(row, i) - mean.map_or(0.0, |mean| mean[i]);
        floor[k].max(factor) as f64 * x as f64 * weight(k) as f64
    };
    (0..budget).map(draw).sum::<f64>() as f32
}

/// Output `column` of a row in the first `budget` directions of a basis: `Σ (q < budget) ((x - mean) Wᵀ V[.., q]) V[column, q]`.
pub fn graded(x: Rows, row: usize, budget: usize, weights: &[f32], basis: &[f32], mean: &[f32], column: usize) -> f32 {
    let inputs = x.width();
    let width = weights.len() / inputs;
    let value = |o: usize| -> f64 {
        (0..inputs).map(|i| (x.get(row, i) - mean[i]) as f64 * weights[o * inputs + i] as f64).sum()
    };
    let values: Vec<f64> = (0..width).map(value).collect();
    let direction = |q: usize| -> f64 { (0..width).map(|o| values[o] * basis[o * width + q] as f64).sum() };
    (0..budget).map(|q| direction(q) * basis[column * width + q] as f64).sum::<f64>() as f32
}

/// Repeatable numbers between minus and plus `scale` (xorshift).
#[cfg(test)]
pub(crate) fn numbers(seed: u64, len: usize, scale: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale
        })
        .collect()
}
