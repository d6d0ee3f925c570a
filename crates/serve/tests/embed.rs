//! Sentence encoders, rerankers and several models at once over real HTTP.

mod common;

use common::{Running, builtin, fixture, fixture_path, settings, start, with_vocabulary};
use serde_json::{Value, json};
use std::sync::OnceLock;

fn server() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| start(settings(vec![fixture("bert-embed-mean"), builtin()])))
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn vectors_are_the_references() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(fixture_path("bert-embed-mean").join("golden.json")).unwrap()).unwrap();
    // The sequence whose token types are all zero, as ids in a request have them.
    let number = golden["sequences"].as_array().unwrap().iter().position(|s| s.get("types").is_none()).unwrap();
    let ids = &golden["sequences"][number]["ids"];
    let got = numbers(&server().post("/embed", &json!({"inputs": ids})).json(200)[0]);
    let want = numbers(&golden["outputs"][number]);
    let want: Vec<f64> = want.iter().map(|x| x / length(&want)).collect();
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4), "{got:?} {want:?}");
}

#[test]
fn vectors_have_the_length_and_dimensions_that_are_asked_for() {
    let embed = |body: Value| server().post("/embed", &body).json(200);
    let plain = embed(json!({"inputs": "the cat"}));
    let vector = numbers(&plain[0]);
    assert!((length(&vector) - 1.0).abs() < 1e-5);
    let long = numbers(&embed(json!({"inputs": "the cat", "normalize": false}))[0]);
    assert!((length(&long) - 1.0).abs() > 1e-3, "{}", length(&long));
    let scaled: Vec<f64> = long.iter().map(|x| x / length(&long)).collect();
    assert!(scaled.iter().zip(&vector).all(|(a, b)| (a - b).abs() < 1e-5));
    let few = numbers(&embed(json!({"inputs": "the cat", "dimensions": 4}))[0]);
    assert_eq!(few.len(), 4);
    assert!((length(&few) - 1.0).abs() < 1e-5);
    server().post("/embed", &json!({"inputs": "a", "dimensions": 0})).refusal(422, "Validation");
    server().post("/embed", &json!({"inputs": "a", "dimensions": 100_000})).refusal(422, "Validation");
    server().post("/embed", &json!({"inputs": [1_000_000]})).refusal(422, "Validation");
    server().post("/predict", &json!({"inputs": "a"})).refusal(424, "Backend");
}

#[test]
fn every_token_has_a_vector() {
    let tokens = server().post("/tokenize", &json!({"inputs": "the cat"})).json(200)[0].as_array().unwrap().len();
    let rows = server().post("/embed_all", &json!({"inputs": ["the cat", "the"]})).json(200);
    assert_eq!(rows[0].as_array().unwrap().len(), tokens);
    // The mean of a text's rows is its vector.
    let pooled = numbers(&server().post("/embed", &json!({"inputs": "the cat", "normalize": false})).json(200)[0]);
    let rows: Vec<Vec<f64>> = rows[0].as_array().unwrap().iter().map(numbers).collect();
    for (i, x) in pooled.iter().enumerate() {
        let mean = rows.iter().map(|row| row[i]).sum::<f64>() / rows.len() as f64;
        assert!((mean - x).abs() < 1e-4, "{mean} {x}");
    }
}

#[test]
fn similarity_is_the_cosine() {
    let body = json!({"inputs": {"source_sentence": "the cat", "sentences": ["the cat", "a mat"]}});
    let cosines = numbers(&server().post("/similarity", &body).json(200));
    assert!((cosines[0] - 1.0).abs() < 1e-5 && cosines[1] < 1.0);
    let empty = json!({"inputs": {"source_sentence": "a", "sentences": []}});
    server().post("/similarity", &empty).refusal(400, "Empty");
}

#[test]
fn openai_clients_get_what_they_expect() {
    let reply = server().post("/v1/embeddings", &json!({"input": ["the cat", "a"], "model": "text-embedding-3-small"}));
    let answer = reply.json(200);
    assert_eq!((&answer["object"], &answer["data"][1]["index"]), (&json!("list"), &json!(1)));
    assert_eq!(answer["usage"]["prompt_tokens"].to_string(), reply.header("x-compute-tokens").unwrap());
    let packed = server().post("/v1/embeddings", &json!({"input": "the cat", "encoding_format": "base64"})).json(200);
    assert!(packed["data"][0]["embedding"].as_str().unwrap().len() > 8);
    let error = server().post("/v1/embeddings", &json!({"input": []})).json(400);
    assert_eq!(error["error"]["type"], "invalid_request_error");
    assert_eq!(server().get("/v1/models").json(200)["data"].as_array().unwrap().len(), 2);
}

#[test]
fn several_models_answer_by_name() {
    let answer = server().post("/predict", &json!({"inputs": "wonderful", "model": "builtin"})).json(200);
    assert_eq!(answer[0]["label"], "positive");
    server().post("/embed", &json!({"inputs": "a", "model": "builtin"})).refusal(424, "Backend");
}

#[test]
fn rerankers_sort_texts() {
    let (_folder, source) = with_vocabulary("bert-regress");
    let server = start(settings(vec![source]));
    assert!(server.get("/info").json(200)["model_type"].get("reranker").is_some());
    let body = json!({"query": "the cat", "texts": ["the mat", "cats sat", "on"], "return_text": true});
    let ranks = server.post("/rerank", &body).json(200);
    let scores: Vec<f64> = ranks.as_array().unwrap().iter().map(|r| r["score"].as_f64().unwrap()).collect();
    assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]) && scores.len() == 3);
    for rank in ranks.as_array().unwrap() {
        let index = rank["index"].as_u64().unwrap() as usize;
        assert_eq!(rank["text"], body["texts"][index]);
        assert!((0.0..=1.0).contains(&rank["score"].as_f64().unwrap()));
    }
    server.post("/rerank", &json!({"query": "a", "texts": []})).refusal(400, "Empty");
}
