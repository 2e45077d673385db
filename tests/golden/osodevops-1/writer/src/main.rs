//! Writes three archives of the same records with kafka-backup's own crate, and prints a line of JSON for each record:
//! `cargo run -- .. > ../records.jsonl`. Not built by CI.

use bytes::Bytes;
use kafka_backup_core::config::CompressionType;
use kafka_backup_core::offset_headers::{X_ORIGINAL_OFFSET, X_ORIGINAL_TIMESTAMP, X_SOURCE_CLUSTER};
use kafka_backup_core::segment::format::BinaryRecord;
use kafka_backup_core::segment::{SegmentReader, SegmentWriter, SegmentWriterConfig};
use kafka_backup_core::storage::{FilesystemBackend, StorageBackend};
use kafka_backup_core::*;
use serde_json::json;
use std::sync::Arc;

type Headers = Vec<(String, Option<Bytes>)>;

fn own_headers(offset: i64) -> Headers {
    let text = |s: &str| Some(Bytes::from(s.to_string()));
    match offset % 6 {
        0 => vec![],
        1 => vec![("trace".into(), text("a")), ("trace".into(), None), ("trace".into(), text(""))],
        2 => vec![(X_ORIGINAL_OFFSET.into(), Some(Bytes::from(7i64.to_le_bytes().to_vec())))],
        3 => vec![("größe".into(), text("ü")), ("".into(), text("empty key"))],
        4 => vec![("x-source-cluster".into(), text("elsewhere"))],
        _ => (0..20).map(|i| (format!("h{i}"), text("v"))).collect(),
    }
}

fn record(offset: i64) -> (BinaryRecord, Headers) {
    let own = own_headers(offset);
    let key = (offset % 5 != 0).then(|| Bytes::from(if offset % 7 == 0 { String::new() } else { format!("key-{offset}") }));
    let value = (offset % 4 != 0)
        .then(|| Bytes::from(if offset % 9 == 0 { vec![] } else { vec![(offset % 251) as u8; (offset as usize * 37) % 60] }));
    let timestamp = if offset % 11 == 0 { -1 } else { 1_700_000_000_000 + offset * 1000 };
    (BinaryRecord { timestamp, offset, key, value, headers: own.clone() }, own)
}

/// Appends the headers that a backup appends when `include_offset_headers` is set.
fn with_offset_headers(mut record: BinaryRecord, cluster: Option<&str>) -> BinaryRecord {
    let long = |value: i64| Some(Bytes::from(value.to_le_bytes().to_vec()));
    record.headers.push((X_ORIGINAL_OFFSET.into(), long(record.offset)));
    record.headers.push((X_ORIGINAL_TIMESTAMP.into(), long(record.timestamp)));
    if let Some(cluster) = cluster {
        record.headers.push((X_SOURCE_CLUSTER.into(), Some(Bytes::from(cluster.to_string()))));
    }
    record
}

async fn write(root: &str, id: &str, compression: CompressionType, adds: bool, cluster: Option<&str>) {
    let storage = Arc::new(FilesystemBackend::new(root.into()));
    let mut manifest = BackupManifest::new(id.to_string());
    manifest.source_cluster_id = cluster.map(str::to_string);
    manifest.source_brokers = vec!["127.0.0.1:9092".to_string()];
    manifest.compression = format!("{compression:?}").to_lowercase();
    manifest.isolation_level = Some(IsolationLevel::ReadCommitted);
    let ext = kafka_backup_core::compression::extension(compression);
    for (topic, partition, ranges, gap) in [
        ("orders", 0, vec![(100i64, 130i64), (140, 150), (150, 155)], Some((130i64, 140i64))),
        ("orders", 1, vec![(0, 25)], None),
    ] {
        let config = SegmentWriterConfig { compression, ..Default::default() };
        let mut writer = SegmentWriter::new(config, storage.clone(), Arc::new(PerformanceMetrics::new()));
        writer.begin_coverage(ranges[0].0, ranges[0].0 - 1);
        let mut segments = vec![];
        for (first, end) in ranges {
            if gap.is_some_and(|(_, gap_end)| gap_end == first) {
                writer.skip_coverage_to(first);
            }
            // Two offsets of the partition without a gap hold no record, as transaction markers.
            for offset in (first..end).filter(|o| gap.is_some() || ![5, 24].contains(o)) {
                let (source, own) = record(offset);
                if id == "zstd" {
                    println!("{}", listed(topic, partition, &source, &own));
                }
                writer.add_record(if adds { with_offset_headers(source, cluster) } else { source }).unwrap();
            }
            writer.extend_coverage(end - 1);
            let key = format!("{id}/topics/{topic}/partition={partition}/segment-{first:020}.bin{ext}");
            segments.push(writer.flush(&key).await.unwrap().unwrap());
            let read = SegmentReader::open(storage.get(&key).await.unwrap()).unwrap();
            assert_eq!(read.record_count() as i64, segments.last().unwrap().record_count);
        }
        let entry = manifest.get_or_create_topic(topic);
        entry.original_partition_count = Some(3);
        let entry = entry.get_or_create_partition(partition);
        segments.into_iter().for_each(|s| entry.add_segment(s));
        if let Some((start_offset, end_offset)) = gap {
            entry.add_gap(OffsetGap { start_offset, end_offset, reason: OffsetGapReason::OffsetOutOfRange, detected_at: 1 });
        }
    }
    let text = serde_json::to_string_pretty(&manifest).unwrap();
    storage.put(&format!("{id}/manifest.json"), Bytes::from(text)).await.unwrap();
}

fn listed(topic: &str, partition: i32, record: &BinaryRecord, headers: &Headers) -> serde_json::Value {
    let text = |bytes: &Option<Bytes>| bytes.as_ref().map(hex::encode);
    let headers: Vec<_> = headers.iter().map(|(key, value)| json!([hex::encode(key), text(value)])).collect();
    json!({"topic": topic, "partition": partition, "offset": record.offset, "timestamp": record.timestamp,
        "key": text(&record.key), "value": text(&record.value), "headers": headers})
}

#[tokio::main]
async fn main() {
    let root = std::env::args().nth(1).expect("a folder to write to");
    write(&root, "zstd", CompressionType::Zstd, true, Some("old-cluster")).await;
    write(&root, "lz4", CompressionType::Lz4, true, None).await;
    write(&root, "plain", CompressionType::None, false, Some("old-cluster")).await;
}
