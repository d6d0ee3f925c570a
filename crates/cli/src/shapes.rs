//! Published shapes with random weights, so that cost can be measured with nothing downloaded.
//!
//! Time and memory do not depend on what a network has learnt; its answers do, so a shape can be inspected and
//! timed but not run or evaluated.

use crate::console;
use crate::failure::Failure;
use crate::parameters::{Reference, Role, references};
use crate::stats::Random;
use sparing_model::{Architecture, Model, Plan, Weights};
use std::collections::BTreeMap;

/// Tokens that a shape may be asked to take.
const MOST_TOKENS: usize = 1 << 16;

/// A published shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// 6 layers x 384, 22.7 M parameters
    #[value(name = "minilm-l6")]
    MiniLmL6,
    /// 12 layers x 384, 33.4 M parameters
    #[value(name = "minilm-l12")]
    MiniLmL12,
    /// 12 layers x 768, 109 M parameters
    BertBase,
    /// 24 layers x 1024, 335 M parameters
    BertLarge,
    /// 6 layers x 768, 67 M parameters
    #[value(name = "distilbert-base")]
    DistilBertBase,
    /// 12 layers x 768, 125 M parameters
    RobertaBase,
    /// 12 layers x 768 sharing weights, 11.7 M parameters
    AlbertBase,
    /// 12 layers x 256, 13.5 M parameters
    ElectraSmall,
    /// 24 layers x 512 with bottlenecks, 24.8 M parameters
    #[value(name = "mobilebert")]
    MobileBert,
    /// 12 layers x 768, causal, 124 M parameters
    Gpt2,
}

impl Shape {
    /// The name the flag takes.
    pub fn name(self) -> &'static str {
        match self {
            Shape::MiniLmL6 => "minilm-l6",
            Shape::MiniLmL12 => "minilm-l12",
            Shape::BertBase => "bert-base",
            Shape::BertLarge => "bert-large",
            Shape::DistilBertBase => "distilbert-base",
            Shape::RobertaBase => "roberta-base",
            Shape::AlbertBase => "albert-base",
            Shape::ElectraSmall => "electra-small",
            Shape::MobileBert => "mobilebert",
            Shape::Gpt2 => "gpt2",
        }
    }

    /// What the published `config.json` says, as far as it matters, with a two-label classifier on the encoders.
    fn config(self) -> String {
        let bert = |layers: usize, hidden: usize, heads: usize, inner: usize| {
            format!(
                r#"{{"model_type":"bert","architectures":["BertForSequenceClassification"],"vocab_size":30522,"hidden_size":{hidden},
                "num_hidden_layers":{layers},"num_attention_heads":{heads},"intermediate_size":{inner},"hidden_act":"gelu",
                "max_position_embeddings":512,"type_vocab_size":2,"layer_norm_eps":1e-12}}"#
            )
        };
        match self {
            Shape::MiniLmL6 => bert(6, 384, 12, 1536),
            Shape::MiniLmL12 => bert(12, 384, 12, 1536),
            Shape::BertBase => bert(12, 768, 12, 3072),
            Shape::BertLarge => bert(24, 1024, 16, 4096),
            Shape::DistilBertBase => r#"{"model_type":"distilbert","architectures":["DistilBertForSequenceClassification"],
                "vocab_size":30522,"dim":768,"n_layers":6,"n_heads":12,"hidden_dim":3072,"activation":"gelu",
                "max_position_embeddings":512}"#
                .to_string(),
            Shape::RobertaBase => r#"{"model_type":"roberta","architectures":["RobertaForSequenceClassification"],
                "vocab_size":50265,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,
                "hidden_act":"gelu","max_position_embeddings":514,"type_vocab_size":1,"layer_norm_eps":1e-5,"pad_token_id":1}"#
                .to_string(),
            Shape::AlbertBase => r#"{"model_type":"albert","architectures":["AlbertForSequenceClassification"],
                "vocab_size":30000,"embedding_size":128,"hidden_size":768,"num_hidden_layers":12,"num_hidden_groups":1,
                "inner_group_num":1,"num_attention_heads":12,"intermediate_size":3072,"hidden_act":"gelu_new",
                "max_position_embeddings":512,"type_vocab_size":2,"layer_norm_eps":1e-12}"#
                .to_string(),
            Shape::ElectraSmall => r#"{"model_type":"electra","architectures":["ElectraForSequenceClassification"],
                "vocab_size":30522,"embedding_size":128,"hidden_size":256,"num_hidden_layers":12,"num_attention_heads":4,
                "intermediate_size":1024,"hidden_act":"gelu","max_position_embeddings":512,"type_vocab_size":2,
                "layer_norm_eps":1e-12}"#
                .to_string(),
            Shape::MobileBert => r#"{"model_type":"mobilebert","architectures":["MobileBertForSequenceClassification"],
                "vocab_size":30522,"embedding_size":128,"hidden_size":512,"num_hidden_layers":24,"num_attention_heads":4,
                "intermediate_size":512,"intra_bottleneck_size":128,"hidden_act":"relu","max_position_embeddings":512,
                "type_vocab_size":2,"layer_norm_eps":1e-12,"trigram_input":true,"use_bottleneck":true,
                "use_bottleneck_attention":false,"key_query_shared_bottleneck":true,"num_feedforward_networks":4,
                "normalization_type":"no_norm","classifier_activation":true}"#
                .to_string(),
            Shape::Gpt2 => r#"{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":50257,"n_embd":768,
                "n_layer":12,"n_head":12,"n_positions":1024,"n_ctx":1024,"activation_function":"gelu_new",
                "layer_norm_epsilon":1e-5}"#
                .to_string(),
        }
    }

    /// The architecture of this shape.
    pub fn architecture(self) -> Result<Architecture, Failure> {
        self.with_positions(0)
    }

    /// The same for texts of so many tokens: a position more is a row more of a table, and costs nothing but that.
    fn with_positions(self, more: usize) -> Result<Architecture, Failure> {
        // Published files leave a decoder out that is the word table once more.
        let has = |name: &str| name != "lm_head.weight";
        let mut config: serde_json::Value =
            serde_json::from_str(&self.config()).map_err(|e| Failure::new(format!("{}: {e}", self.name())))?;
        for key in ["max_position_embeddings", "n_positions", "n_ctx"] {
            if let Some(positions) = config[key].as_u64() {
                config[key] = (positions + more as u64).into();
            }
        }
        Ok(Architecture::from_config(config.to_string().as_bytes(), None, &has)?)
    }

    /// A model of this shape with random weights in memory.
    #[cfg(test)]
    fn model(self) -> Result<Model, Failure> {
        self.model_for(0)
    }

    /// A model of this shape with random weights in memory, with positions for so many tokens at least.
    pub fn model_for(self, tokens: usize) -> Result<Model, Failure> {
        let most = self.architecture()?.max_tokens.unwrap_or(usize::MAX);
        if tokens > MOST_TOKENS {
            return Err(Failure::Usage(format!("--length {tokens}: a shape takes at most {MOST_TOKENS} tokens")));
        }
        if tokens > most {
            let name = self.name();
            console::note(&format!("{name} takes {most} tokens as published; here it has positions for {tokens}"));
        }
        let architecture = self.with_positions(tokens.saturating_sub(most))?;
        let weights = Weights::from_bytes(random_weights(&references(&architecture)))?;
        Ok(Model::new(architecture, Plan::default(), weights))
    }
}

/// The bytes of a safetensors file (<https://github.com/huggingface/safetensors#format>) with a random tensor for each
/// name. bf16 halves what has to be made and kept; the values keep activations at the size a trained network's have.
fn random_weights(references: &[Reference]) -> Vec<u8> {
    let mut tensors: BTreeMap<&str, (Vec<usize>, Role)> = BTreeMap::new();
    for reference in references {
        let (shape, _) = tensors.entry(&reference.name).or_insert_with(|| (reference.shape.clone(), reference.role));
        // Several slices of one tensor: the furthest tells its size.
        shape.iter_mut().zip(&reference.shape).for_each(|(a, b)| *a = (*a).max(*b));
    }
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, (shape, _)) in &tensors {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        let entry = serde_json::json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, end] });
        header.insert(name.to_string(), entry);
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut bytes = Vec::with_capacity(8 + header.len() + end);
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(header);
    let mut random = Random::new(0);
    for (shape, role) in tensors.values() {
        let spread = match role {
            // Uniform numbers up to sqrt(3 / inputs) keep the variance of what goes through.
            Role::Matrix(inputs) => (3.0 / *inputs as f32).sqrt(),
            Role::Table => 0.05,
            Role::Scale | Role::Shift => 0.02,
        };
        let centre = if *role == Role::Scale { 1.0 } else { 0.0 };
        let mut left: usize = shape.iter().product();
        while left > 0 {
            let bits = random.bits().to_le_bytes();
            for pair in bits.as_chunks::<2>().0.iter().take(left) {
                let unit = f32::from(i16::from_le_bytes(*pair)) / 32768.0;
                bytes.extend(((centre + spread * unit).to_bits() >> 16).to_le_bytes()[..2].iter());
            }
            left = left.saturating_sub(4);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{Part, count};

    #[test]
    fn minilm_has_its_published_number_of_parameters() {
        let architecture = Shape::MiniLmL6.architecture().unwrap();
        let counts = count(&references(&architecture));
        // all-MiniLM-L6-v2 has 22,713,216 with its pooler; the classifier adds 2 x 384 + 2.
        assert_eq!(counts.values().sum::<usize>(), 22_713_216 + 770);
        assert_eq!(counts[&Part::Embeddings], (30522 + 512 + 2) * 384);
        assert_eq!(counts[&Part::FfnUp] + counts[&Part::FfnDown], 6 * (2 * 384 * 1536 + 384 + 1536));
    }

    #[test]
    fn every_shape_has_the_parameters_its_help_says() {
        use clap::ValueEnum;
        for shape in Shape::value_variants() {
            let total: usize = count(&references(&shape.architecture().unwrap())).values().sum();
            let value = shape.to_possible_value().unwrap();
            assert_eq!(value.get_name(), shape.name());
            let help = value.get_help().unwrap().to_string();
            let said: f64 = help.split(", ").last().unwrap().split(' ').next().unwrap().parse().unwrap();
            assert!((total as f64 / 1e6 - said).abs() < said * 0.005, "{help}: {total}");
        }
        let gpt2: usize = count(&references(&Shape::Gpt2.architecture().unwrap())).values().sum();
        assert_eq!(gpt2, 124_439_808);
    }

    #[test]
    fn shapes_take_longer_texts_than_published() {
        for (shape, most) in [(Shape::BertBase, 512), (Shape::RobertaBase, 512), (Shape::Gpt2, 1024)] {
            let (published, longer) = (shape.with_positions(0).unwrap(), shape.with_positions(4096 - most).unwrap());
            assert_eq!((published.max_tokens, longer.max_tokens), (Some(most), Some(4096)), "{}", shape.name());
        }
    }

    #[test]
    fn random_weights_are_a_sound_file_of_healthy_numbers() {
        let model = Shape::MiniLmL6.model().unwrap();
        model.architecture.check(&model.weights).unwrap();
        let word = model.weights.tensor(&model.architecture.embeddings.word).unwrap();
        let mut row = vec![0.0; 384];
        word.read(1000 * 384, &mut row);
        assert!(row.iter().all(|x| x.abs() <= 0.05) && row.iter().any(|x| x.abs() > 0.02));
    }
}
