//! MA-BERT as the paper writes it, one number at a time in double precision: every text padded to the network's length,
//! scores multiplied by the mask, the network applied to every row of scores, norms where they stand.

use sparing_model::{
    Activation, Embeddings, Layer, Linear, Model, Norm, NormKind, NormedLinear, ProjectionPlace, Sequence, Source,
};

pub type Rows = Vec<Vec<f64>>;

/// What a PowerNorm divides by, by its name and the rows that it gets.
pub type Phi<'a> = dyn Fn(&str, &Rows) -> Vec<f64> + 'a;

fn numbers(values: Vec<f32>) -> Vec<f64> {
    values.into_iter().map(f64::from).collect()
}

fn part(model: &Model, name: &str, start: usize, count: usize) -> Vec<f64> {
    let mut values = vec![0.0; count];
    model.weights.tensor(name).unwrap().read(start, &mut values);
    numbers(values)
}

fn tensor(model: &Model, name: &str) -> Vec<f64> {
    part(model, name, 0, model.weights.tensor(name).unwrap().len())
}

pub fn linear(model: &Model, map: &Linear, rows: &Rows) -> Rows {
    let weights = numbers(model.weights.matrix(map).unwrap());
    let bias = match &map.bias {
        Some(bias) => numbers(model.weights.bias(bias, map.outputs).unwrap()),
        None => vec![0.0; map.outputs],
    };
    let dot = |row: &[f64], x: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
    let each = |x: &Vec<f64>| weights.chunks_exact(map.inputs).zip(&bias).map(|(row, b)| dot(row, x) + b).collect();
    rows.iter().map(each).collect()
}

fn norm(model: &Model, norm: &Norm, rows: Rows, phi: &Phi) -> Rows {
    let (weight, bias) = (tensor(model, &norm.weight), tensor(model, &norm.bias));
    let phi = if norm.kind == NormKind::Power { phi(&norm.running_phi(), &rows) } else { vec![] };
    let each = |x: Vec<f64>| {
        let count = x.len() as f64;
        let normal: Vec<f64> = match norm.kind {
            NormKind::Layer => {
                let mean = x.iter().sum::<f64>() / count;
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
                x.iter().map(|x| (x - mean) / (variance + f64::from(norm.eps)).sqrt()).collect()
            }
            NormKind::Power => x.iter().zip(&phi).map(|(x, phi)| x / (phi + f64::from(norm.eps)).sqrt()).collect(),
            NormKind::Affine => x,
        };
        normal.iter().zip(&weight).zip(&bias).map(|((x, w), b)| x * w + b).collect()
    };
    rows.into_iter().map(each).collect()
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Clip => x.clamp(-1.0, 1.0),
        other => panic!("{other:?}"),
    }
}

fn activated(activation: Activation, mut rows: Rows) -> Rows {
    rows.iter_mut().flatten().for_each(|x| *x = activate(activation, *x));
    rows
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn sums(a: &Rows, b: &Rows) -> Rows {
    a.iter().zip(b).map(|(a, b)| sum(a, b)).collect()
}

/// Last hidden states of the real tokens.
pub fn hidden(model: &Model, sequence: &Sequence) -> Rows {
    hidden_with(model, sequence, &|name, _| tensor(model, name))
}

/// The same, with what PowerNorms divide by from elsewhere.
pub fn hidden_with(model: &Model, sequence: &Sequence, phi: &Phi) -> Rows {
    let architecture = &model.architecture;
    let e = &architecture.embeddings;
    let row = |name: &str, row: usize, width: usize| part(model, name, row * width, width);
    let words: Rows = sequence.ids.iter().map(|id| row(&e.word, *id as usize, e.width)).collect();
    let projected = |rows: Rows, place: ProjectionPlace| match &e.projection {
        Some(map) if e.projection_place == place => linear(model, map, &rows),
        _ => rows,
    };
    let words: Rows = (0..words.len()).map(|place| word(e, &words, place)).collect();
    let mut x = projected(words, ProjectionPlace::BeforeSum);
    for (place, token) in x.iter_mut().enumerate() {
        let width = token.len();
        if let Some(positions) = &e.positions {
            *token = sum(token, &row(&positions.name, positions.offset + place, width));
        }
        if let Some(types) = &e.token_types {
            *token = sum(token, &row(&types.name, sequence.types.get(place).copied().unwrap_or(0) as usize, width));
        }
    }
    if let Some(n) = &e.norm {
        x = norm(model, n, x, phi);
    }
    x = projected(x, ProjectionPlace::AfterNorm);
    for layer in &architecture.layers {
        x = self::layer(model, layer, x, phi);
    }
    x
}

/// A word's embedding, between those of the next and the previous one where the model has all three.
fn word(e: &Embeddings, words: &Rows, place: usize) -> Vec<f64> {
    let at = |place: Option<usize>| place.and_then(|p| words.get(p)).cloned().unwrap_or(vec![0.0; e.width]);
    if !e.trigram {
        return words[place].clone();
    }
    [at(Some(place + 1)), at(Some(place)), at(place.checked_sub(1))].concat()
}

fn normed(model: &Model, map: &NormedLinear, rows: &Rows, phi: &Phi) -> Rows {
    norm(model, &map.norm, linear(model, &map.linear, rows), phi)
}

fn layer(model: &Model, layer: &Layer, x: Rows, phi: &Phi) -> Rows {
    let narrow = layer.bottleneck.as_ref().map_or(x.clone(), |b| normed(model, &b.input, &x, phi));
    let from = |source: Source| match (source, &layer.bottleneck) {
        (Source::Narrow, _) => narrow.clone(),
        (Source::Shared, Some(b)) => normed(model, b.shared.as_ref().unwrap(), &x, phi),
        _ => x.clone(),
    };
    let sources = layer.bottleneck.as_ref().map_or([Source::Hidden; 2], |b| [b.query_key_from, b.value_from]);
    let context = attention(model, layer, &from(sources[0]), &from(sources[1]));
    let output = linear(model, &layer.attention.output, &context);
    let mut at = norm(model, &layer.attention_norm, sums(&narrow, &output), phi);
    for ffn in &layer.ffns {
        let inner = activated(ffn.activation, linear(model, &ffn.up, &at));
        at = norm(model, &ffn.norm, sums(&at, &linear(model, &ffn.down, &inner)), phi);
    }
    match &layer.bottleneck {
        Some(b) => norm(model, &b.output.norm, sums(&linear(model, &b.output.linear, &at), &x), phi),
        None => at,
    }
}

fn attention(model: &Model, layer: &Layer, x: &Rows, of_values: &Rows) -> Rows {
    let a = &layer.attention;
    let network = a.network.as_ref().unwrap();
    let (tokens, n, d) = (network.tokens, x.len(), a.head_width);
    // Of padding: keys are whatever they are, their scores are masked; values count for nothing.
    let padded = |map: &Linear, x: &Rows| -> Rows {
        let mut rows = linear(model, map, x);
        rows.resize(tokens, vec![0.0; a.heads * d]);
        rows
    };
    let (q, mut k, mut v) = (padded(&a.query, x), padded(&a.key, x), padded(&a.value, of_values));
    let mut mask: Vec<f64> = (0..tokens).map(|t| if t < n { 1.0 } else { 0.0 }).collect();
    if let Some(p) = &network.projections {
        let project = |map: &Linear, rows: &Rows| -> Rows {
            let columns: Rows = (0..a.heads * d).map(|c| rows.iter().map(|row| row[c]).collect()).collect();
            let projected = linear(model, map, &columns);
            (0..map.outputs).map(|key| projected.iter().map(|column| column[key]).collect()).collect()
        };
        (k, v) = (project(&p.keys, &k), project(&p.values, &v));
        mask = vec![1.0; k.len()];
    }
    let mut context = vec![vec![0.0; a.heads * d]; n];
    for head in 0..a.heads {
        let part = head * d..(head + 1) * d;
        let dot = |query: &[f64], key: &[f64]| -> f64 { query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() };
        let score = |query: &Vec<f64>| -> Vec<f64> {
            let of = |key: &Vec<f64>| dot(&query[part.clone()], &key[part.clone()]) * f64::from(a.scale);
            k.iter().zip(&mask).map(|(key, mask)| of(key) * mask).collect()
        };
        let scores: Rows = q[..n].iter().map(score).collect();
        let inner = activated(Activation::Relu, linear(model, &network.hidden, &scores));
        for (out, shares) in context.iter_mut().zip(linear(model, &network.output, &inner)) {
            for (share, value) in shares.iter().zip(&v) {
                out[part.clone()].iter_mut().zip(&value[part.clone()]).for_each(|(out, v)| *out += share * v);
            }
        }
    }
    context
}

/// The head on the first row.
pub fn head(model: &Model, hidden: &Rows) -> Vec<f64> {
    let mut x: Rows = vec![hidden[0].clone()];
    for stage in &model.architecture.head.stages {
        x = stage.linear.as_ref().map_or(x.clone(), |map| linear(model, map, &x));
        x = activated(stage.activation, x);
    }
    x.concat()
}
