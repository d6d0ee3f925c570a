//! A BERT or RoBERTa as the Longformer of the same weights: every token sees a window of its neighbours, and longer texts fit
//! (Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>, section 5).

use crate::config::MAX_ROWS;
use crate::tokenizer::definition;
use crate::weights::{Cut, serialise};
use crate::{Error, Family, HeadChoice, HeadKind, LoadOptions, Model, OwnedTensor, Plan, PositionTable};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Projections that global tokens have another of.
const PROJECTIONS: [&str; 3] = [".attention.self.query", ".attention.self.key", ".attention.self.value"];

/// What Longformer's heads call the tensors of BERT's. Its classifier holds what BERT's pooler is.
const HEADS: [(&str, &str); 4] = [
    ("pooler.dense.", "classifier.dense."),
    ("cls.predictions.transform.dense.", "lm_head.dense."),
    ("cls.predictions.transform.LayerNorm.", "lm_head.layer_norm."),
    ("cls.predictions.", "lm_head."),
];

impl Model {
    /// The Longformer that this BERT or RoBERTa becomes: a token sees `window / 2` neighbours on either side, global tokens (the first, in
    /// classifiers) see and are seen by all and begin with copies of the projections of the others, and the position table is
    /// repeated up to `positions` tokens (`None`: as many as now). Where windows hide nothing, it answers as this model does.
    ///
    /// It is saved as a directory that Python loads too, with this model's tokenizer; only question answering with BERT's tokenizer
    /// does not run there, which wants RoBERTa's three separators.
    pub fn windowed(&self, window: usize, positions: Option<usize>) -> Result<Model, Error> {
        let table = self.check_windowed(window)?;
        let mut files: BTreeMap<String, Vec<u8>> = self.companions()?.into_iter().collect();
        files.retain(|name, _| !name.contains("sentence") && name != "modules.json");
        let mut config = object(&files, "config.json")?;
        if config.is_empty() {
            return Err(Error::new("windows: a model made in memory has no config.json to go by"));
        }
        let (first, tokens) = self.reach(&config, table, positions)?;

        let kind = text(&config, "model_type").to_string();
        let class = config.get("architectures").and_then(|a| a.get(0)).and_then(Value::as_str).unwrap_or("Model");
        let head = class.find("For").map_or("Model", |at| &class[at..]).to_string();
        let tensors = self.windowed_tensors(head == "ForSequenceClassification", first, tokens, table)?;
        self.reconfigure(&mut config, window, first, tokens);
        config.insert("architectures".into(), json!([format!("Longformer{head}")]));
        put(&mut files, "config.json", config)?;

        if let (Some(directory), Some(_)) = (&self.directory, &self.tokenizer) {
            // Read by its own family, before the directory says that it is another's.
            if let Some(tokenizer) = definition(directory, self.architecture.family)? {
                files.insert("tokenizer.json".to_string(), tokenizer);
            }
            let mut settings = object(&files, "tokenizer_config.json")?;
            settings.entry("tokenizer_class").or_insert(json!(tokenizer_class(&kind)));
            settings.insert("model_max_length".into(), json!(tokens));
            put(&mut files, "tokenizer_config.json", settings)?;
        }
        files.insert("model.safetensors".to_string(), serialise(&tensors)?);
        let choice = HeadChoice::of(self.architecture.head.kind);
        let made = Model::load_from_memory(files, &LoadOptions { head: Some(choice) })?;
        let steps = |model: &Model| model.architecture.head.stages.iter().map(|s| s.activation).collect::<Vec<_>>();
        if steps(&made) != steps(self) {
            return Err(Error::new("windows: Longformer's head is fixed to another activation than this model's has"));
        }
        Ok(made)
    }

    /// The position table of a model that can get windows.
    fn check_windowed(&self, window: usize) -> Result<&PositionTable, Error> {
        let family = self.architecture.family;
        if !matches!(family, Family::Bert | Family::Roberta) {
            return Err(Error::new(format!("windows: the model is a {family:?}; only BERT and RoBERTa can get them")));
        }
        if window < 2 || window % 2 == 1 || window > MAX_ROWS {
            return Err(Error::new(format!(
                "windows: {window} tokens; an even number from 2 to {MAX_ROWS} is expected"
            )));
        }
        if self.plan != Plan::default() {
            return Err(Error::new(
                "windows: the model is economised (sparing.json); give the one that it was made of",
            ));
        }
        if matches!(self.architecture.head.kind, HeadKind::Embed { .. }) {
            return Err(Error::new(
                "windows: a sentence encoder is no head of Longformer's; read the model bare (hidden)",
            ));
        }
        let table = self.architecture.embeddings.positions.as_ref().filter(|table| table.rows > table.offset);
        table.ok_or_else(|| Error::new("windows: the model has no position table that could be repeated"))
    }

    /// The row of the first token's position, and how many tokens there are rows for. Longformer counts from behind the padding
    /// token's id, as RoBERTa does and BERT does not.
    fn reach(
        &self,
        config: &Map<String, Value>,
        table: &PositionTable,
        positions: Option<usize>,
    ) -> Result<(usize, usize), Error> {
        let now = table.rows - table.offset;
        let tokens = positions.unwrap_or(now);
        if tokens < now {
            return Err(Error::new(format!(
                "positions: {tokens} are fewer than the model's {now}; leave them as they are"
            )));
        }
        let first = match self.architecture.family {
            Family::Roberta => table.offset,
            _ => config.get("pad_token_id").and_then(Value::as_u64).map_or(0, |id| id as usize).saturating_add(1),
        };
        let words = self.architecture.embeddings.vocabulary;
        if first > words {
            return Err(Error::new(format!("config.json: \"pad_token_id\" is {}; there are {words} words", first - 1)));
        }
        match tokens.checked_add(first) {
            Some(rows) if rows <= MAX_ROWS => Ok((first, tokens)),
            _ => Err(Error::new(format!("positions: {tokens} are too many; {} is the limit", MAX_ROWS - first))),
        }
    }

    /// Writes into the configuration what is different now, and what Longformer's defaults would change.
    fn reconfigure(&self, config: &mut Map<String, Value>, window: usize, first: usize, tokens: usize) {
        let embeddings = &self.architecture.embeddings;
        let separator = self.tokenizer.as_ref().and_then(|tokenizer| tokenizer.end_id());
        let changed = [
            ("model_type", json!("longformer")),
            ("attention_window", json!(vec![window; self.architecture.layers.len()])),
            ("max_position_embeddings", json!(first + tokens)),
            ("pad_token_id", json!(first - 1)),
            ("vocab_size", json!(embeddings.vocabulary)),
            ("type_vocab_size", json!(embeddings.token_types.as_ref().map_or(0, |types| types.rows))),
        ];
        config.extend(changed.map(|(name, value)| (name.to_string(), value)));
        for (name, id) in [("sep_token_id", separator), ("eos_token_id", separator), ("bos_token_id", None)] {
            config.entry(name).or_insert(json!(id));
        }
    }

    /// All tensors under Longformer's names. `classifier`: whether there is one of whole texts, which BERT keeps in one map.
    fn windowed_tensors(
        &self,
        classifier: bool,
        first: usize,
        tokens: usize,
        table: &PositionTable,
    ) -> Result<Vec<OwnedTensor>, Error> {
        let word = &self.architecture.embeddings.word;
        let prefix = word.strip_suffix("embeddings.word_embeddings.weight").unwrap_or_default();
        let bert = self.architecture.family == Family::Bert;
        let renamed = |name: &str| {
            let bare = name.strip_prefix(prefix).unwrap_or(name);
            if bare.starts_with("embeddings.") || bare.starts_with("encoder.") {
                return format!("longformer.{bare}");
            }
            let whole = Some(("classifier.", "classifier.out_proj.")).filter(|_| classifier);
            let names = HEADS.into_iter().chain(whole).filter(|_| bert);
            let found = names.filter_map(|(old, new)| Some(format!("{new}{}", bare.strip_prefix(old)?))).next();
            found.unwrap_or_else(|| name.to_string())
        };
        let mut tensors = Vec::new();
        for name in self.weights.names() {
            // A buffer of old files with as many numbers as there were positions.
            if name.ends_with("embeddings.position_ids") {
                continue;
            }
            let mut tensor = self.weights.owned(name)?;
            tensor.name = renamed(name);
            if name == table.name {
                tensor = tensor.cut(Cut::Rows(&repeated(table, first, tokens)));
            }
            let global = PROJECTIONS.iter().find_map(|part| {
                let (layer, rest) = tensor.name.split_once(&format!("{part}."))?;
                Some(format!("{layer}{part}_global.{rest}"))
            });
            if let Some(name) = global {
                tensors.push(OwnedTensor { name, ..tensor.clone() });
            }
            tensors.push(tensor);
        }
        Ok(tensors)
    }
}

/// The rows of the old table that make the new one. Those before the first are read for padding alone.
fn repeated(table: &PositionTable, first: usize, tokens: usize) -> Vec<usize> {
    let now = table.rows - table.offset;
    let before = (0..first).map(|row| row % table.rows);
    before.chain((0..tokens).map(|position| table.offset + position % now)).collect()
}

/// What Python calls the tokenizer of a family; without it, it would take Longformer's own.
fn tokenizer_class(model_type: &str) -> &'static str {
    match model_type {
        "roberta" => "RobertaTokenizer",
        "xlm-roberta" => "XLMRobertaTokenizer",
        "camembert" => "CamembertTokenizer",
        _ => "BertTokenizer",
    }
}

fn text<'a>(config: &'a Map<String, Value>, field: &str) -> &'a str {
    config.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A JSON file, empty if it is not there.
fn object(files: &BTreeMap<String, Vec<u8>>, name: &str) -> Result<Map<String, Value>, Error> {
    let Some(content) = files.get(name) else { return Ok(Map::new()) };
    serde_json::from_slice(content).map_err(|e| Error::new(format!("{name}: {e}")))
}

fn put(files: &mut BTreeMap<String, Vec<u8>>, name: &str, content: Map<String, Value>) -> Result<(), Error> {
    let mut text = serde_json::to_vec_pretty(&content).map_err(|e| Error::new(format!("{name}: {e}")))?;
    text.push(b'\n');
    files.insert(name.to_string(), text);
    Ok(())
}
