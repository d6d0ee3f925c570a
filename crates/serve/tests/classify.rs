//! A classifier over real HTTP: `/predict`, what every request has, and what a classifier refuses.

mod common;

use common::{Running, builtin, fixture, settings, start};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// One server for the tests that change nothing.
fn server() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| start(settings(vec![builtin()])))
}

fn labels(answer: &Value) -> Vec<&str> {
    answer.as_array().unwrap().iter().map(|p| p["label"].as_str().unwrap()).collect()
}

#[test]
fn a_text_gets_labels_the_likeliest_first() {
    let reply = server().post("/predict", &json!({"inputs": "a joy from start to end"}));
    let answer = reply.json(200);
    assert_eq!(labels(&answer), ["positive", "negative"]);
    let scores: Vec<f64> = answer.as_array().unwrap().iter().map(|p| p["score"].as_f64().unwrap()).collect();
    assert!(scores[0] > 0.9 && (scores[0] + scores[1] - 1.0).abs() < 1e-6, "{scores:?}");
    for name in ["x-compute-time", "x-total-time", "x-queue-time", "x-inference-time", "x-tokenization-time"] {
        assert!(reply.header(name).unwrap().parse::<u64>().is_ok(), "{name}");
    }
    assert_eq!(reply.header("x-compute-characters"), Some("23"));
    assert_eq!(reply.header("x-compute-tokens"), Some("8"));
    assert_eq!(reply.header("x-compute-type"), Some("cpu+optimized"));
}

#[test]
fn batches_and_pairs_keep_their_shape() {
    let answer = server().post("/predict", &json!({"inputs": [["wonderful"], ["a bore", "and long"]]})).json(200);
    assert_eq!(answer.as_array().unwrap().len(), 2);
    assert_eq!(labels(&answer[0])[0], "positive");
    assert_eq!(labels(&answer[1])[0], "negative");
    let pair = server().post("/predict", &json!({"inputs": ["a bore", "and long"]})).json(200);
    assert_eq!(pair, answer[1]);
    let raw = server().post("/predict", &json!({"inputs": "wonderful", "raw_scores": true})).json(200);
    assert!(raw[0]["score"].as_f64().unwrap() > 1.0, "{raw}");
    // The routes that hosted endpoints call.
    let inputs = json!({"inputs": "wonderful"});
    assert_eq!(server().post("/invocations", &inputs).json(200), server().post("/predict", &inputs).json(200));
}

#[test]
fn answers_do_not_depend_on_company() {
    let alone = |text: &str| server().post("/predict", &json!({"inputs": text})).json(200);
    let texts = ["dull", "a gripping, funny film", "not my cup of tea", "it is what it is"];
    let batch: Vec<Vec<&str>> = texts.iter().map(|text| vec![*text]).collect();
    let together = server().post("/predict", &json!({"inputs": batch})).json(200);
    for (number, text) in texts.iter().enumerate() {
        let (a, b) = (&together[number], &alone(text));
        assert_eq!(labels(a), labels(b));
        assert!((a[0]["score"].as_f64().unwrap() - b[0]["score"].as_f64().unwrap()).abs() < 1e-5);
    }
}

#[test]
fn what_a_classifier_cannot_do_is_a_failed_dependency() {
    for (path, body) in [
        ("/embed", json!({"inputs": "a"})),
        ("/embed_all", json!({"inputs": "a"})),
        ("/similarity", json!({"inputs": {"source_sentence": "a", "sentences": ["b"]}})),
        ("/rerank", json!({"query": "a", "texts": ["b"]})),
    ] {
        let message = server().post(path, &body).refusal(424, "Backend");
        assert!(message.starts_with("model is not a"), "{message}");
    }
    let error = server().post("/v1/embeddings", &json!({"input": "a"})).json(424);
    assert_eq!(error["error"]["type"], "server_error");
}

#[test]
fn bad_requests_are_told_what_is_wrong() {
    let post = |body: Value| server().post("/predict", &body);
    assert_eq!(post(json!({"inputs": ""})).refusal(400, "Empty"), "`inputs` cannot be empty");
    post(json!({"inputs": []})).refusal(400, "Empty");
    post(json!({"inputs": ["a", "b", "c"]})).refusal(422, "Validation");
    post(json!({"inputs": 3})).refusal(422, "Validation");
    post(json!({})).refusal(422, "Validation");
    let message = post(json!({"inputs": vec![vec!["a"]; 33]})).refusal(413, "Validation");
    assert_eq!(message, "batch size 33 > maximum allowed batch size 32");
    let long = "word ".repeat(600);
    let message = post(json!({"inputs": long, "truncate": false})).refusal(413, "Validation");
    assert!(message.contains("less than 512 tokens"), "{message}");
    assert_eq!(post(json!({"inputs": long})).header("x-compute-tokens"), Some("512"));
    post(json!({"inputs": "a", "truncation_direction": "left"})).refusal(422, "Validation");
    post(json!({"inputs": "a", "prompt_name": "query"})).refusal(422, "Validation");
    post(json!({"inputs": "a", "model": "nobody"})).refusal(404, "NotFound");
    server().raw_post("/predict", b"{\"inputs\": ").refusal(400, "Validation");
    server().raw_post("/predict", b"{\"inputs\": \"\xff\xfe\"}").refusal(400, "Validation");
    server().raw_post("/predict", &b"[".repeat(100_000)).refusal(422, "Validation");
    server()
        .raw_post("/predict", &[b"{\"inputs\": ".as_slice(), &b"[".repeat(100_000)].concat())
        .refusal(400, "Validation");
    server().send("POST", "/predict", &[], b"{\"inputs\": \"a\"}").refusal(415, "Validation");
    server().raw_post("/predict", &vec![b' '; 2_000_001]).refusal(413, "Validation");
    server().get("/predict").refusal(405, "NotFound");
    server().get("/nowhere").refusal(404, "NotFound");
}

#[test]
fn the_dial_changes_the_plan_and_nothing_else() {
    let post = |body: Value| server().post("/predict", &body);
    let exact = post(json!({"inputs": "a gripping, funny film"})).json(200);
    for dial in [
        json!({"precision": "int8"}),
        json!({"precision": "bf16"}),
        json!({"attention": "mca:0.4"}),
        json!({"attention": "graded:0.4"}),
        json!({"precision": "int8", "attention": "exact,drop=0.4"}),
    ] {
        let other = post(json!({"inputs": "a gripping, funny film", "sparing": dial})).json(200);
        assert_eq!(labels(&other), labels(&exact), "{dial}");
        assert_ne!(other[0]["score"], exact[0]["score"], "{dial}");
    }
    let same = post(json!({"inputs": "a gripping, funny film", "sparing": {"attention": "exact"}})).json(200);
    assert_eq!(same, exact);
    // Time enough for the exact model, and for no model at all.
    assert_eq!(post(json!({"inputs": "a gripping, funny film", "deadline_ms": 60_000})).json(200), exact);
    let hurried = post(json!({"inputs": "a gripping, funny film", "deadline_ms": 0})).json(200);
    assert_ne!(hurried, exact);
    for (dial, part) in [
        (json!({"precision": "int3"}), "f32, bf16, int8 or auto"),
        (json!({"attention": "best:1"}), "no sampler is called"),
        (json!({"precision": 8}), "invalid type"),
        (json!({"speed": "full"}), "unknown field"),
        (json!({"attention": "exact,drop77=1"}), "no layer 77"),
    ] {
        let message = post(json!({"inputs": "a", "sparing": dial})).refusal(422, "Validation");
        assert!(message.contains(part), "{message}");
    }
    post(json!({"inputs": "a", "deadline_ms": 5, "sparing": {}})).refusal(422, "Validation");
    let uncalibrated = start(settings(vec![fixture("bert-classify-text")]));
    let graded = json!({"inputs": "a", "sparing": {"attention": "graded:0.4"}});
    let message = uncalibrated.post("/predict", &graded).refusal(422, "Validation");
    assert!(message.contains("calibrat"), "{message}");
}

#[test]
fn tokens_go_there_and_back() {
    let tokens = server().post("/tokenize", &json!({"inputs": "Déjà vu 漢"})).json(200);
    let tokens = tokens[0].as_array().unwrap();
    assert_eq!(tokens[0]["text"], "[CLS]");
    assert_eq!((&tokens[0]["special"], &tokens[0]["start"]), (&json!(true), &Value::Null));
    assert_eq!((&tokens[1]["text"], &tokens[1]["start"]), (&json!("Dé"), &json!(0)));
    let last = &tokens[tokens.len() - 2];
    assert_eq!((&last["start"], &last["stop"]), (&json!(8), &json!(9)), "{last}");
    let plain = server().post("/tokenize", &json!({"inputs": ["a b"], "add_special_tokens": false})).json(200);
    assert_eq!(plain[0].as_array().unwrap().len(), 2);
    let ids: Vec<&Value> = tokens.iter().map(|token| &token["id"]).collect();
    let text = server().post("/decode", &json!({"ids": ids})).json(200);
    assert_eq!(text, json!(["deja vu 漢"]));
    server().post("/decode", &json!({"ids": []})).refusal(400, "Empty");
    server().post("/tokenize", &json!({"inputs": ""})).refusal(400, "Empty");
    server().post("/tokenize", &json!({"inputs": vec!["a"; 40]})).refusal(413, "Validation");
}

#[test]
fn the_server_tells_about_itself() {
    let info = server().get("/info").json(200);
    assert_eq!(info["model_id"], "builtin");
    assert_eq!(info["model_type"]["classifier"]["id2label"], json!({"0": "negative", "1": "positive"}));
    assert_eq!((&info["max_input_length"], &info["model_dtype"]), (&json!(512), &json!("float32")));
    server().post("/predict", &json!({"inputs": "a"})).json(200);
    server().post("/predict", &json!({"inputs": ""})).json(400);
    let figures = server().get("/metrics");
    assert_eq!(figures.header("content-type"), Some("text/plain; version=0.0.4"));
    for name in [
        "te_request_count{method=\"single\"} ",
        "te_request_success{method=\"single\"} ",
        "te_request_failure{err=\"empty\"} ",
        "te_request_queue_duration_bucket{le=\"+Inf\"} ",
        "te_batch_next_tokens_count ",
        "te_queue_size ",
        "sparing_http_requests_total{route=\"/predict\",status=\"200\"} ",
    ] {
        assert!(figures.body.contains(name), "{name} is not in\n{}", figures.body);
    }
}

#[test]
fn requests_have_ids() {
    let given = server().send("GET", "/health", &[("x-request-id", "mine-1")], b"");
    assert_eq!(given.header("x-request-id"), Some("mine-1"));
    let odd = server().send("GET", "/health", &[("x-request-id", "a b")], b"");
    assert!(odd.header("x-request-id").unwrap().contains('-') && odd.header("x-request-id") != Some("a b"));
}
