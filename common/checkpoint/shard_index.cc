#include "common/checkpoint/shard_index.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/io/json_fields.h"
#include "common/io/parse_json.h"
#include "common/status/status_macros.h"

namespace tandem::checkpoint {
namespace {

using nlohmann::json;

absl::StatusOr<StoredRun> ParseRun(const io::JsonFields& fields) {
  StoredRun out;
  ASSIGN_OR_RETURN(out.model, fields.String("model"));
  ASSIGN_OR_RETURN(out.kind, fields.String("kind"));
  ASSIGN_OR_RETURN(out.run.tensor, fields.String("tensor"));
  ASSIGN_OR_RETURN(out.run.shape, fields.IntList("shape"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> box, fields.IntList("box"));
  ASSIGN_OR_RETURN(out.run.begin, fields.Int("begin"));
  ASSIGN_OR_RETURN(out.run.count, fields.Int("count"));
  ASSIGN_OR_RETURN(out.run.offset, fields.Int("offset"));
  if (box.size() != 4) return fields.Error("box", "expected rows and columns, each begin and end");
  RETURN_IF_ERROR(CheckShape(fields, "shape", out.run.shape).status());
  out.run.box = {box[0], box[1], box[2], box[3]};
  const Box whole = WholeBox(out.run.shape);
  const Box& found = out.run.box;
  if (found.row_begin < 0 || found.row_begin > found.row_end || found.row_end > whole.row_end ||
      found.column_begin < 0 || found.column_begin > found.column_end ||
      found.column_end > whole.column_end || out.run.begin < 0 || out.run.count < 0 ||
      out.run.begin > found.numel() || out.run.count > found.numel() - out.run.begin) {
    return fields.Error("box", absl::StrCat("expected a part of tensor ", out.run.tensor));
  }
  return out;
}

}  // namespace

std::string SerializeIndex(const ShardIndex& index) {
  json out = {{"data_file", index.data_file},
              {"size_bytes", index.digests.size_bytes},
              {"block_bytes", index.digests.block_bytes},
              {"block_digests", index.digests.digests},
              {"runs", json::array()}};
  for (const StoredRun& stored : index.runs) {
    const Run& run = stored.run;
    out["runs"].push_back(
        {{"model", stored.model},
         {"kind", stored.kind},
         {"tensor", run.tensor},
         {"shape", run.shape},
         {"box", {run.box.row_begin, run.box.row_end, run.box.column_begin, run.box.column_end}},
         {"begin", run.begin},
         {"count", run.count},
         {"offset", run.offset}});
  }
  return out.dump(1) + "\n";
}

absl::StatusOr<ShardIndex> ParseIndex(const std::string& text, const std::string& place) {
  absl::StatusOr<json> read = io::ParseJson<json>(text);
  if (!read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": ", read.status().message()));
  }
  const json parsed = *std::move(read);
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": expected a JSON object"));
  }
  const io::JsonFields fields(parsed, place);
  ShardIndex out;
  ASSIGN_OR_RETURN(out.data_file, fields.String("data_file"));
  RETURN_IF_ERROR(CheckFileName(fields, "data_file", out.data_file));
  ASSIGN_OR_RETURN(out.digests.size_bytes, fields.Int("size_bytes"));
  ASSIGN_OR_RETURN(out.digests.block_bytes, fields.Int("block_bytes"));
  ASSIGN_OR_RETURN(out.digests.digests, fields.StringList("block_digests"));
  if (out.digests.size_bytes < 0 || out.digests.block_bytes <= 0 ||
      out.digests.block_bytes > (int64_t{1} << 30)) {
    return fields.Error("size_bytes", "expected the sizes of a file and its blocks");
  }
  const int64_t blocks = out.digests.size_bytes / out.digests.block_bytes +
                         (out.digests.size_bytes % out.digests.block_bytes != 0 ? 1 : 0);
  if (blocks != static_cast<int64_t>(out.digests.digests.size())) {
    return fields.Error("block_digests", absl::StrCat("expected ", blocks, ", one for each block"));
  }
  const auto runs = parsed.find("runs");
  if (runs == parsed.end() || !runs->is_array()) return fields.Error("runs", "expected an array");
  for (size_t i = 0; i < runs->size(); ++i) {
    const std::string where = absl::StrCat(place, ": runs[", i, "]");
    if (!(*runs)[i].is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": expected an object"));
    }
    const io::JsonFields run_fields((*runs)[i], where);
    ASSIGN_OR_RETURN(StoredRun stored, ParseRun(run_fields));
    const int64_t elements = out.digests.size_bytes / static_cast<int64_t>(sizeof(float));
    if (stored.run.offset < 0 || stored.run.offset > elements ||
        stored.run.count > elements - stored.run.offset) {
      return run_fields.Error("offset", absl::StrCat("expected a run within the ", elements,
                                                     " elements of ", out.data_file));
    }
    out.runs.push_back(std::move(stored));
  }
  return out;
}

}  // namespace tandem::checkpoint
