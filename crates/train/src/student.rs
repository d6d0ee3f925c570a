//! A smaller network in the image of a larger one.

use crate::distill::Mapping;
use crate::inventory::{inventory, layer_inventory};
use crate::prepare::{Prepared, take_config};
use serde_json::{Map, Value, json};
use sparing_model::{Architecture, Error, Functions, HeadChoice, HeadKind, Model, Plan};

/// How the student differs from its teacher; `None`: it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StudentShape {
    /// Number of layers.
    pub layers: Option<usize>,
    /// Width of the hidden states.
    pub width: Option<usize>,
    /// Inner width of feed-forward blocks.
    pub ffn: Option<usize>,
    /// Number of heads.
    pub heads: Option<usize>,
    /// All layers share one set of weights (ALBERT; BERT teachers only).
    pub share: bool,
    /// Width of word embeddings when layers share (ALBERT); by default the teacher's.
    pub embedding: Option<usize>,
}

impl Prepared {
    /// A student in the image of a teacher, with its head and labels. Where shapes allow, it begins with the numbers
    /// of the teacher's layers that `mapping` chooses, and with its embeddings and head.
    pub fn student(teacher: &Model, shape: &StudentShape, mapping: Mapping) -> Result<Prepared, Error> {
        if teacher.plan.functions.is_some() {
            return Err(Error::new(
                "functions of the teacher are replaced, and a student in its image would have none of them; distil the model that it was \
                 made of and replace them with `sparing train transfer`, or give a --student",
            ));
        }
        let mut files = teacher.companions()?;
        let mut config = take_config(&mut files)?;
        reshape(&mut config, shape, &teacher.architecture)?;
        let mut student =
            Prepared::from_config(teacher, config, files, choice(teacher.architecture.head.kind)?, Plan::default())?;
        student.begin_as(&teacher.architecture, mapping);
        Ok(student)
    }

    /// The same network with functions replaced, its head included: tensors that stay begin with the model's numbers.
    pub fn replaced(model: &Model, functions: &Functions) -> Result<Prepared, Error> {
        if model.plan.functions.is_some() {
            return Err(Error::new(
                "functions of the teacher are replaced already; give the model that it was made of",
            ));
        }
        let mut files = model.companions()?;
        let config = take_config(&mut files)?;
        let (elements, functions) = (model.plan.elements.clone(), Some(functions.clone()));
        let plan = Plan { elements, functions, ..Plan::default() };
        Prepared::from_config(model, config, files, HeadChoice::of(model.architecture.head.kind), plan)
    }

    /// Says which tensors of another architecture this one begins with.
    fn begin_as(&mut self, teacher: &Architecture, mapping: Mapping) {
        let mine = &self.architecture;
        let (layers, teacher_layers) = (mine.layers.len(), teacher.layers.len());
        let part = |a: &Architecture, depth: fn(usize, usize) -> bool| -> Vec<String> {
            let top = a.layers.len() + 1;
            inventory(a).into_iter().filter(|e| depth(e.depth, top)).map(|e| e.name).collect()
        };
        let mut pairs: Vec<(String, String)> = Vec::new();
        for depth in [|d: usize, _: usize| d == 0, |d: usize, top: usize| d == top] {
            pairs.extend(part(teacher, depth).into_iter().zip(part(mine, depth)));
        }
        for (i, layer) in mine.layers.iter().enumerate() {
            let from = mapping.layer(i + 1, layers, teacher_layers).max(1) - 1;
            let Some(from) = teacher.layers.get(from) else { continue };
            let theirs = layer_inventory(from).into_iter().map(|e| e.name);
            pairs.extend(theirs.zip(layer_inventory(layer).into_iter().map(|e| e.name)));
        }
        // Shared layers: the first mapping counts.
        let mut seen = std::collections::BTreeSet::new();
        pairs.retain(|(_, here)| seen.insert(here.clone()));
        self.set_pairs(pairs);
    }
}

/// The head of a teacher.
pub(crate) fn choice(kind: HeadKind) -> Result<HeadChoice, Error> {
    match HeadChoice::of(kind) {
        HeadChoice::Hidden | HeadChoice::Embed => {
            Err(Error::new("the teacher has no head to teach from; fine-tune it on the task first"))
        }
        choice => Ok(choice),
    }
}

/// Writes the shape into the configuration, under the names its family uses.
fn reshape(config: &mut Map<String, Value>, shape: &StudentShape, teacher: &Architecture) -> Result<(), Error> {
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default().to_string();
    if shape.share {
        share(config, &kind, shape, teacher)?;
    }
    let [layers, width, ffn, heads] = match kind.as_str() {
        "distilbert" => ["n_layers", "dim", "hidden_dim", "n_heads"],
        "gpt2" => ["n_layer", "n_embd", "n_inner", "n_head"],
        "xlnet" => ["n_layer", "d_model", "d_inner", "n_head"],
        _ => ["num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"],
    };
    let values = [(layers, shape.layers), (width, shape.width), (ffn, shape.ffn), (heads, shape.heads)];
    for (name, value) in values {
        if let Some(value) = value {
            config.insert(name.to_string(), json!(value));
        }
    }
    if kind == "xlnet"
        && let (Some(width), Some(heads)) = (shape.width, config.get("n_head").and_then(Value::as_u64))
    {
        config.insert("d_head".to_string(), json!(width as u64 / heads.max(1)));
    }
    Ok(())
}

/// BERT's configuration as ALBERT's with one group of layers.
fn share(
    config: &mut Map<String, Value>,
    kind: &str,
    shape: &StudentShape,
    teacher: &Architecture,
) -> Result<(), Error> {
    if kind == "albert" {
        return Ok(());
    }
    if kind != "bert" {
        return Err(Error::new(format!(
            "layers can share weights in the image of a BERT or ALBERT model, not of {kind}"
        )));
    }
    let class = config.get("architectures").and_then(|a| a.get(0)).and_then(Value::as_str).unwrap_or("BertModel");
    let class = class.replacen("Bert", "Albert", 1);
    config.insert("architectures".into(), json!([class]));
    config.insert("model_type".into(), json!("albert"));
    config.insert("num_hidden_groups".into(), json!(1));
    config.insert("inner_group_num".into(), json!(1));
    config.insert("embedding_size".into(), json!(shape.embedding.unwrap_or(teacher.embeddings.width)));
    // ALBERT's own defaults differ from BERT's.
    config.entry("hidden_act").or_insert(json!("gelu"));
    config.entry("type_vocab_size").or_insert(json!(2));
    config.entry("max_position_embeddings").or_insert(json!(512));
    Ok(())
}
