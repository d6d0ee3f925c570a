//! MA-BERT as the paper writes it, one number at a time in double precision: every text padded to the network's length,
//! scores multiplied by the mask, the network applied to every row of scores, norms where they stand.

use sparing_model::{
    Activation, Embeddings, Layer, Linear, Model, Norm, NormKind, NormedLinear, ProjectionPlace, Sequence, Source,
};

pub type Rows = Vec<Vec<f64>>;

fn numbers(values: Vec<f32>) -> Vec<f64> {
    values.into_iter().map(f64::from).collect()
}

fn tensor(model: &Model, name: &str) -> Vec<f64> {
    let tensor = model.weights.tensor(name).unwrap();
    let mut values = vec![0.0; tensor.len()];
    tensor.read(0, &mut values);
    numbers(values)
}

pub fn linear(model: &Model, map: &Linear, x: &[f64]) -> Vec<f64> {
    let weights = numbers(model.weights.matrix(map).unwrap());
    let bias = match &map.bias {
        Some(bias) => numbers(model.weights.bias(bias, map.outputs).unwrap()),
        None => vec![0.0; map.outputs],
    };
    let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
    weights.chunks_exact(map.inputs).zip(bias).map(|(row, bias)| dot(row) + bias).collect()
}

fn norm(model: &Model, norm: &Norm, x: &[f64]) -> Vec<f64> {
    let (weight, bias) = (tensor(model, &norm.weight), tensor(model, &norm.bias));
    let count = x.len() as f64;
    let normal: Vec<f64> = match norm.kind {
        NormKind::Layer => {
            let mean = x.iter().sum::<f64>() / count;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            x.iter().map(|x| (x - mean) / (variance + f64::from(norm.eps)).sqrt()).collect()
        }
        NormKind::Power => {
            let phi = tensor(model, &norm.running_phi());
            x.iter().zip(phi).map(|(x, phi)| x / (phi + f64::from(norm.eps)).sqrt()).collect()
        }
        NormKind::Affine => x.to_vec(),
    };
    normal.iter().zip(weight).zip(bias).map(|((x, w), b)| x * w + b).collect()
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Clip => x.clamp(-1.0, 1.0),
        other => panic!("{other:?}"),
    }
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Last hidden states of the real tokens.
pub fn hidden(model: &Model, sequence: &Sequence) -> Rows {
    let architecture = &model.architecture;
    let e = &architecture.embeddings;
    let row = |name: &str, row: usize, width: usize| tensor(model, name)[row * width..(row + 1) * width].to_vec();
    let words: Rows = sequence.ids.iter().map(|id| row(&e.word, *id as usize, e.width)).collect();
    let projected = |token: Vec<f64>, place: ProjectionPlace| match &e.projection {
        Some(map) if e.projection_place == place => linear(model, map, &token),
        _ => token,
    };
    let mut x: Rows = Vec::new();
    for place in 0..words.len() {
        let mut token = projected(word(e, &words, place), ProjectionPlace::BeforeSum);
        let width = token.len();
        if let Some(positions) = &e.positions {
            token = sum(&token, &row(&positions.name, positions.offset + place, width));
        }
        if let Some(types) = &e.token_types {
            token = sum(&token, &row(&types.name, sequence.types.get(place).copied().unwrap_or(0) as usize, width));
        }
        if let Some(n) = &e.norm {
            token = norm(model, n, &token);
        }
        x.push(projected(token, ProjectionPlace::AfterNorm));
    }
    for layer in &architecture.layers {
        x = self::layer(model, layer, x);
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

fn normed(model: &Model, map: &NormedLinear, rows: &Rows) -> Rows {
    rows.iter().map(|x| norm(model, &map.norm, &linear(model, &map.linear, x))).collect()
}

fn layer(model: &Model, layer: &Layer, x: Rows) -> Rows {
    let narrow = layer.bottleneck.as_ref().map_or(x.clone(), |b| normed(model, &b.input, &x));
    let from = |source: Source| match (source, &layer.bottleneck) {
        (Source::Narrow, _) => narrow.clone(),
        (Source::Shared, Some(b)) => normed(model, b.shared.as_ref().unwrap(), &x),
        _ => x.clone(),
    };
    let sources = layer.bottleneck.as_ref().map_or([Source::Hidden; 2], |b| [b.query_key_from, b.value_from]);
    let context = attention(model, layer, &from(sources[0]), &from(sources[1]));
    let rows = narrow.iter().zip(&x).zip(context).map(|((narrow, x), context)| {
        let mut at =
            norm(model, &layer.attention_norm, &sum(narrow, &linear(model, &layer.attention.output, &context)));
        for ffn in &layer.ffns {
            let inner = linear(model, &ffn.up, &at).into_iter().map(|x| activate(ffn.activation, x));
            at = norm(model, &ffn.norm, &sum(&at, &linear(model, &ffn.down, &inner.collect::<Vec<_>>())));
        }
        match &layer.bottleneck {
            Some(b) => norm(model, &b.output.norm, &sum(&linear(model, &b.output.linear, &at), x)),
            None => at,
        }
    });
    rows.collect()
}

fn attention(model: &Model, layer: &Layer, x: &Rows, of_values: &Rows) -> Rows {
    let a = &layer.attention;
    let network = a.network.as_ref().unwrap();
    let (tokens, n, d) = (network.tokens, x.len(), a.head_width);
    let nothing = vec![0.0; a.heads * d];
    // Of padding: keys are whatever they are, their scores are masked; values count for nothing.
    let padded = |map: &Linear, x: &Rows| -> Rows {
        (0..tokens).map(|t| x.get(t).map_or(nothing.clone(), |x| linear(model, map, x))).collect()
    };
    let (q, mut k, mut v) = (padded(&a.query, x), padded(&a.key, x), padded(&a.value, of_values));
    let mut mask: Vec<f64> = (0..tokens).map(|t| if t < n { 1.0 } else { 0.0 }).collect();
    if let Some(p) = &network.projections {
        let project = |map: &Linear, rows: &Rows| -> Rows {
            let columns = (0..a.heads * d).map(|c| rows.iter().map(|row| row[c]).collect::<Vec<f64>>());
            let projected: Rows = columns.map(|column| linear(model, map, &column)).collect();
            (0..map.outputs).map(|key| projected.iter().map(|column| column[key]).collect()).collect()
        };
        (k, v) = (project(&p.keys, &k), project(&p.values, &v));
        mask = vec![1.0; k.len()];
    }
    let mut context = vec![nothing.clone(); n];
    for (query, out) in context.iter_mut().enumerate() {
        for head in 0..a.heads {
            let part = head * d..(head + 1) * d;
            let dot = |key: &Vec<f64>| -> f64 {
                q[query][part.clone()].iter().zip(&key[part.clone()]).map(|(q, k)| q * k).sum::<f64>()
            };
            let scores: Vec<f64> =
                k.iter().zip(&mask).map(|(key, mask)| dot(key) * f64::from(a.scale) * mask).collect();
            let inner: Vec<f64> = linear(model, &network.hidden, &scores).into_iter().map(|x| x.max(0.0)).collect();
            let shares = linear(model, &network.output, &inner);
            for (share, value) in shares.iter().zip(&v) {
                out[part.clone()].iter_mut().zip(&value[part.clone()]).for_each(|(out, v)| *out += share * v);
            }
        }
    }
    context
}

/// The head on the first row.
pub fn head(model: &Model, hidden: &Rows) -> Vec<f64> {
    let mut x = hidden[0].clone();
    for stage in &model.architecture.head.stages {
        x = stage.linear.as_ref().map_or(x.clone(), |map| linear(model, map, &x));
        x.iter_mut().for_each(|x| *x = activate(stage.activation, *x));
    }
    x
}
