//! Fuzz targets: for everything that reads input, a function that takes any bytes and panics if a
//! promise is broken. Fuzzers call them from `tests/fuzz/fuzz_targets/`, and a test of this crate
//! over `tests/fuzz/seeds/`.
//!
//! Targets generate no bytes, and check no timing.

mod adopted_type;
mod archive;
mod camlog;
mod compressed_logs;
mod condition;
mod config_language;
mod csv_table;
mod dataset_stages;
mod delimited;
mod exec_stream;
mod expectations;
mod files_sink;
mod ice_record;
mod ice_types;
mod inputs;
mod inverse;
mod jpeg;
mod json_messages;
mod jsonl_lines;
mod lcm_datagrams;
mod lcm_log;
mod lcm_messages;
mod lcm_scan;
mod lcm_tcpq;
mod lcm_types;
mod lcm_url;
mod lerobot;
mod manifest;
mod mcap;
mod memory;
mod name;
mod orca_master;
mod parquet;
mod pattern;
mod picture;
mod pieces;
mod pipeline_file;
mod protobuf_messages;
mod records;
mod ros1_bag;
mod ros2_db3;
mod ros_messages;
mod round_trip;
mod sniff;
mod stage_options;
mod template;
mod vel_log;
mod vel_messages;
mod velodyne_packet;
mod when;

pub use adopted_type::adopted_type;
pub use archive::archive;
pub use camlog::camlog;
pub use compressed_logs::compressed_logs;
pub use condition::condition;
pub use config_language::config_language;
pub use csv_table::csv_table;
pub use dataset_stages::dataset_stages;
pub use delimited::delimited;
pub use exec_stream::exec_stream;
pub use expectations::expectations;
pub use files_sink::files_sink;
pub use ice_record::ice_record;
pub use ice_types::ice_types;
pub use jpeg::jpeg;
pub use json_messages::json_messages;
pub use jsonl_lines::jsonl_lines;
pub use lcm_datagrams::lcm_datagrams;
pub use lcm_log::lcm_log;
pub use lcm_messages::lcm_messages;
pub use lcm_scan::lcm_scan;
pub use lcm_tcpq::lcm_tcpq;
pub use lcm_types::lcm_types;
pub use lcm_url::lcm_url;
pub use lerobot::lerobot;
pub use manifest::manifest;
pub use mcap::mcap;
pub use name::name;
pub use orca_master::orca_master;
pub use parquet::parquet;
pub use pattern::pattern;
pub use picture::picture;
pub use pieces::EVERY_COUNT;
pub use pipeline_file::pipeline_file;
pub use protobuf_messages::protobuf_messages;
pub use records::records;
pub use ros_messages::ros_messages;
pub use ros1_bag::ros1_bag;
pub use ros2_db3::{ros2_db3, ros2_db3_beside};
pub use round_trip::round_trip;
pub use sniff::sniff;
pub use stage_options::stage_options;
pub use template::template;
pub use vel_log::vel_log;
pub use vel_messages::vel_messages;
pub use velodyne_packet::velodyne_packet;
pub use when::when;

/// Takes any bytes.
///
/// # Panics
///
/// If a promise is broken.
pub type Target = fn(&[u8]);

/// All targets by the name of their program, seeds and line in `tests/fuzz/README.md`; sorted.
pub const TARGETS: &[(&str, Target)] = &[
    ("adopted_type", adopted_type),
    ("archive", archive),
    ("camlog", camlog),
    ("compressed_logs", compressed_logs),
    ("condition", condition),
    ("config_language", config_language),
    ("csv_table", csv_table),
    ("dataset_stages", dataset_stages),
    ("delimited", delimited),
    ("exec_stream", exec_stream),
    ("expectations", expectations),
    ("files_sink", files_sink),
    ("ice_record", ice_record),
    ("ice_types", ice_types),
    ("jpeg", jpeg),
    ("json_messages", json_messages),
    ("jsonl_lines", jsonl_lines),
    ("lcm_datagrams", lcm_datagrams),
    ("lcm_log", lcm_log),
    ("lcm_messages", lcm_messages),
    ("lcm_scan", lcm_scan),
    ("lcm_tcpq", lcm_tcpq),
    ("lcm_types", lcm_types),
    ("lcm_url", lcm_url),
    ("lerobot", lerobot),
    ("manifest", manifest),
    ("mcap", mcap),
    ("name", name),
    ("orca_master", orca_master),
    ("parquet", parquet),
    ("pattern", pattern),
    ("picture", picture),
    ("pipeline_file", pipeline_file),
    ("protobuf_messages", protobuf_messages),
    ("records", records),
    ("ros1_bag", ros1_bag),
    ("ros2_db3", ros2_db3),
    ("ros2_db3_beside", ros2_db3_beside),
    ("ros_messages", ros_messages),
    ("round_trip", round_trip),
    ("sniff", sniff),
    ("stage_options", stage_options),
    ("template", template),
    ("vel_log", vel_log),
    ("vel_messages", vel_messages),
    ("velodyne_packet", velodyne_packet),
    ("when", when),
];
