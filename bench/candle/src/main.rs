//! candle's BERT in f32, driven by the line protocol described in bench/README.md.
//!
//!     candle-worker MODEL_DIRECTORY
//!
//! A directory with a `classifier` gives two logits per sequence, one without gives the last hidden state.
//! The number of threads is what RAYON_NUM_THREADS says.

use std::io::{BufRead, Write};
use std::time::Instant;

use candle_core::{DType, Device, Error, Module, Result, Tensor};
use candle_nn::{Linear, VarBuilder, linear};
use candle_transformers::models::bert::{BertModel, Config};

/// The encoder and, where the directory has one, the pooler and the classifier on top.
struct Model {
    encoder: BertModel,
    head: Option<(Linear, Linear)>,
}

impl Model {
    fn load(directory: &str) -> Result<Self> {
        let text = std::fs::read_to_string(format!("{directory}/config.json"))?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(Error::wrap)?;
        let classifies = json["architectures"][0].as_str().is_some_and(|a| a.ends_with("SequenceClassification"));
        let labels = json["id2label"].as_object().map_or(2, |l| l.len());
        let config: Config = serde_json::from_value(json).map_err(Error::wrap)?;
        let file = format!("{directory}/model.safetensors");
        // SAFETY: nothing writes the benchmark's model while it runs.
        let weights = unsafe { VarBuilder::from_mmaped_safetensors(&[file], DType::F32, &Device::Cpu)? };
        let width = config.hidden_size;
        let (encoder, head) = if classifies {
            let pooler = linear(width, width, weights.pp("bert.pooler.dense"))?;
            let classifier = linear(width, labels, weights.pp("classifier"))?;
            (BertModel::load(weights.pp("bert"), &config)?, Some((pooler, classifier)))
        } else {
            (BertModel::load(weights, &config)?, None)
        };
        Ok(Self { encoder, head })
    }

    /// ids `[batch, length]` to `[batch, length, width]`, or to `[batch, labels]` with a head.
    fn run(&self, ids: &Tensor, types: &Tensor) -> Result<Tensor> {
        let hidden = self.encoder.forward(ids, types, None)?;
        match &self.head {
            None => Ok(hidden),
            Some((pooler, classifier)) => {
                let first = hidden.narrow(1, 0, 1)?.squeeze(1)?.contiguous()?;
                classifier.forward(&pooler.forward(&first)?.tanh()?)
            }
        }
    }
}

fn inputs(ids: Vec<u32>, batch: usize) -> Result<(Tensor, Tensor)> {
    let length = ids.len() / batch;
    let ids = Tensor::from_vec(ids, (batch, length), &Device::Cpu)?;
    let types = ids.zeros_like()?;
    Ok((ids, types))
}

/// CPU time of this process in milliseconds.
fn cpu_ms() -> f64 {
    cpu_time::ProcessTime::now().as_duration().as_secs_f64() * 1e3
}

/// `rss hwm` in KiB.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |key: &str| {
        let line = status.lines().find(|l| l.starts_with(key));
        line.and_then(|l| l.split_whitespace().nth(1)).unwrap_or("0").to_string()
    };
    format!("{} {}", of("VmRSS"), of("VmHWM"))
}

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).ok_or_else(|| Error::msg("usage: candle-worker MODEL_DIRECTORY"))?;
    let start = Instant::now();
    let model = Model::load(&directory)?;
    println!("READY {:.3}", start.elapsed().as_secs_f64());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |w: &&str| w.parse::<usize>().map_err(Error::wrap);
        let answers: Vec<String> = match words.as_slice() {
            ["ids", ids @ ..] => {
                let ids = ids.iter().map(|w| Ok(number(w)? as u32)).collect::<Result<Vec<_>>>()?;
                let (ids, types) = inputs(ids, 1)?;
                let out = model.run(&ids, &types)?.flatten_all()?.to_vec1::<f32>()?;
                out.iter().map(|v| v.to_string()).collect()
            }
            [batch, length, times] => {
                let (batch, length, times) = (number(batch)?, number(length)?, number(times)?);
                let ids = (0..batch * length).map(|i| ((i * 7919 + 13) % 30000) as u32).collect();
                let (ids, types) = inputs(ids, batch)?;
                let mut found = Vec::with_capacity(times);
                for _ in 0..times {
                    let (wall, cpu) = (Instant::now(), cpu_ms());
                    std::hint::black_box(model.run(&ids, &types)?);
                    found.push(format!("{:.4}:{:.4}", wall.elapsed().as_secs_f64() * 1e3, cpu_ms() - cpu));
                }
                found
            }
            _ => break,
        };
        println!("{} | {}", answers.join(" "), memory());
        std::io::stdout().flush()?;
    }
    Ok(())
}
