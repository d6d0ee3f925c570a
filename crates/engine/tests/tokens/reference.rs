//! Tokens economised one number at a time, as the documentation says.

use super::{batch, engine};
use sparing_model::{Executor, Layer, LayerTokens, Linear, Model, Norm, NormKind, Precision, Sequence, Tokens, Wanted};

/// A token that is still there.
#[derive(Clone)]
pub struct Token {
    pub x: Vec<f32>,
    pub kind: u32,
    /// How many tokens of the input it stands for.
    pub size: f32,
}

/// A sequence on its way through a model.
pub struct Reference<'a> {
    model: &'a Model,
    pub tokens: Vec<Token>,
    input: usize,
    /// How many times a token left or skipped.
    pub away: usize,
}

impl<'a> Reference<'a> {
    /// Behind the embeddings.
    pub fn new(model: &'a Model, sequence: &Sequence) -> Self {
        let mut embeddings = Model::load(&super::fixture("bert-classify")).unwrap();
        embeddings.architecture = model.architecture.clone();
        embeddings.weights = model.weights.clone();
        embeddings.architecture.layers.clear();
        let start =
            engine(&embeddings, "exact", 1, Precision::F32).run(&batch(std::slice::from_ref(sequence), Wanted::Hidden));
        let x = start.unwrap().sequences.remove(0);
        let kind = |row: usize| sequence.types.get(row).copied().unwrap_or(0);
        let rows = x.chunks_exact(model.architecture.hidden).enumerate();
        let tokens: Vec<Token> = rows.map(|(row, x)| Token { x: x.to_vec(), kind: kind(row), size: 1.0 }).collect();
        Reference { model, input: tokens.len(), tokens, away: 0 }
    }

    /// Through all layers; the last one never chooses.
    pub fn run(&mut self, plan: &Tokens) {
        let layers = &self.model.architecture.layers;
        for (number, layer) in layers.iter().enumerate() {
            let last = number + 1 == layers.len();
            self.layer(layer, &if last { LayerTokens::default() } else { plan.of(number) });
        }
    }

    /// States of all tokens, row after row.
    pub fn hidden(&self) -> Vec<f32> {
        self.tokens.iter().flat_map(|token| token.x.clone()).collect()
    }

    /// What the head makes of the first.
    pub fn head(&self) -> Vec<f32> {
        head(self.model, &self.tokens[0].x)
    }

    fn layer(&mut self, layer: &Layer, wanted: &LayerTokens) {
        let (model, a, n) = (self.model, &layer.attention, self.tokens.len());
        let (d, width) = (a.head_width, a.heads * a.head_width);
        let [q, k, v] = [&a.query, &a.key, &a.value].map(|map| linear(model, map, &self.hidden()));
        let mut context = vec![vec![0f32; width]; n];
        let mut measure = vec![0f32; n];
        for h in 0..a.heads {
            let part = |of: &[f32], row: usize| of[row * width + h * d..row * width + (h + 1) * d].to_vec();
            for (i, context) in context.iter_mut().enumerate() {
                let weights: Vec<f32> =
                    (0..n).map(|j| self.tokens[j].size * (dot(&part(&q, i), &part(&k, j)) * a.scale).exp()).collect();
                let sum: f32 = weights.iter().sum();
                for j in 0..n {
                    let (p, value) = (weights[j] / sum, part(&v, j));
                    measure[j] += p * dot(&value, &value).sqrt();
                    value.iter().enumerate().for_each(|(c, value)| context[h * d + c] += p * value);
                }
            }
        }
        let even = measure.iter().sum::<f32>() / n as f32;
        let kinds: Vec<u32> = self.tokens.iter().map(|token| token.kind).collect();
        let end = |j: usize| j == 0 || j + 1 == n || kinds[j] != kinds[j + 1];
        let below = |j: usize, cut: f32| !end(j) && measure[j] / even < cut;
        let mut there: Vec<bool> = (0..n).map(|j| !below(j, wanted.drop)).collect();
        // Who has as many better ones before it as may stay leaves.
        let ends = (0..n).filter(|j| end(*j)).count();
        let stay = wanted.staying(self.input).max(ends) - ends;
        for j in (0..n).filter(|j| !end(*j)) {
            let better = |i: &usize| !end(*i) && (measure[*i], j) > (measure[j], *i);
            there[j] &= (0..n).filter(better).count() < stay;
        }
        let mean_key = |j: usize| -> Vec<f32> {
            (0..d).map(|c| (0..a.heads).map(|h| k[j * width + h * d + c]).sum::<f32>() / a.heads as f32).collect()
        };
        let cosine = |i: usize, j: usize| {
            let (i, j) = (mean_key(i), mean_key(j));
            dot(&i, &j) / (dot(&i, &i) * dot(&j, &j)).sqrt()
        };
        let most = wanted.merging(there.iter().filter(|there| **there).count());
        let movable: Vec<usize> = (0..n).filter(|j| there[*j] && !end(*j)).collect();
        let likest = |i: usize| {
            let others = movable.iter().skip(1).step_by(2).map(|j| (cosine(i, *j), i, *j));
            others.max_by(|x, y| x.0.total_cmp(&y.0))
        };
        let mut pairs: Vec<(f32, usize, usize)> = movable.iter().step_by(2).filter_map(|i| likest(*i)).collect();
        pairs.sort_by(|x, y| y.0.total_cmp(&x.0));
        pairs.truncate(most);
        let mut groups: Vec<Vec<usize>> = (0..n).map(|j| vec![j]).collect();
        for (_, from, into) in pairs {
            there[from] = false;
            groups[into].push(from);
        }
        let mut out = Vec::new();
        for j in 0..n {
            if !there[j] {
                self.away += 1;
                continue;
            }
            let size: f32 = groups[j].iter().map(|i| self.tokens[*i].size).sum();
            let states: Vec<Vec<f32>> = self.tokens.iter().map(|token| token.x.clone()).collect();
            let mean = |of: &[Vec<f32>]| -> Vec<f32> {
                let column = |c: usize| groups[j].iter().map(|i| self.tokens[*i].size * of[*i][c]).sum::<f32>() / size;
                (0..of[j].len()).map(column).collect()
            };
            let (residual, context) = (mean(&states), mean(&context));
            let mut at = linear(model, &a.output, &context);
            at.iter_mut().zip(residual).for_each(|(a, x)| *a += x);
            let mut at = normed(model, &layer.attention_norm, &at);
            let ffn = &layer.ffns[0];
            if below(j, wanted.skip) {
                self.away += 1;
            } else {
                let mut inner = linear(model, &ffn.up, &at);
                activated(ffn.activation, &mut inner);
                let down = linear(model, &ffn.down, &inner);
                at.iter_mut().zip(down).for_each(|(a, x)| *a += x);
            }
            out.push(Token { x: normed(model, &ffn.norm, &at), kind: kinds[j], size });
        }
        self.tokens = out;
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `W x + b` for every row.
fn linear(model: &Model, linear: &Linear, x: &[f32]) -> Vec<f32> {
    let weights = model.weights.matrix(linear).unwrap();
    let bias = linear.bias.as_ref().map(|bias| model.weights.bias(bias, linear.outputs).unwrap());
    let product = |row: &[f32], i: usize| {
        dot(row, &weights[i * linear.inputs..(i + 1) * linear.inputs]) + bias.as_ref().map_or(0.0, |bias| bias[i])
    };
    x.chunks_exact(linear.inputs)
        .flat_map(|row| (0..linear.outputs).map(move |i| (row, i)))
        .map(|(row, i)| product(row, i))
        .collect()
}

fn normed(model: &Model, norm: &Norm, x: &[f32]) -> Vec<f32> {
    assert_eq!(norm.kind, NormKind::Layer);
    let (w, b) = (
        model.weights.vector(&norm.weight, norm.width).unwrap(),
        model.weights.vector(&norm.bias, norm.width).unwrap(),
    );
    let mut out = Vec::new();
    for row in x.chunks_exact(norm.width) {
        let mean = row.iter().sum::<f32>() / row.len() as f32;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / row.len() as f32;
        out.extend((0..row.len()).map(|i| (row[i] - mean) / (variance + norm.eps).sqrt() * w[i] + b[i]));
    }
    out
}

fn activated(activation: sparing_model::Activation, x: &mut [f32]) {
    use sparing_model::Activation as A;
    for x in x {
        *x = match activation {
            A::Identity => *x,
            A::Relu => x.max(0.0),
            A::Clip => x.clamp(-1.0, 1.0),
            A::Tanh => x.tanh(),
            A::Silu => *x / (1.0 + (-*x).exp()),
            A::GeluTanh => 0.5 * *x * (1.0 + (0.797_884_6 * (*x + 0.044715 * x.powi(3))).tanh()),
            A::Gelu => 0.5 * *x * (1.0 + erf(*x as f64 / 2f64.sqrt()) as f32),
        };
    }
}

/// Its Taylor series.
fn erf(x: f64) -> f64 {
    let x = x.clamp(-4.0, 4.0);
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// The head on one row.
fn head(model: &Model, row: &[f32]) -> Vec<f32> {
    let mut x = row.to_vec();
    for stage in &model.architecture.head.stages {
        if let Some(map) = &stage.linear {
            x = linear(model, map, &x);
        }
        activated(stage.activation, &mut x);
        if let Some(norm) = &stage.norm {
            x = normed(model, norm, &x);
        }
    }
    x
}
