#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/atomic_file.h"
#include "common/io/json_fields.h"
#include "common/io/read_file.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/trainer/checkpoint/sharded_checkpoint.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::trainer {
namespace {

constexpr char kFormat[] = "tandem-sharded-checkpoint";
constexpr int kFormatVersion = 1;

absl::StatusOr<std::string> Decode(const io::JsonFields& fields, const std::string& key) {
  ASSIGN_OR_RETURN(const std::string text, fields.String(key));
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes)) return fields.Error(key, "expected base64");
  return bytes;
}

absl::StatusOr<const nlohmann::json*> Array(const io::JsonFields& fields, const std::string& key) {
  const auto at = fields.json().find(key);
  if (at == fields.json().end() || !at->is_array()) return fields.Error(key, "expected an array");
  for (const nlohmann::json& entry : *at) {
    if (!entry.is_object()) return fields.Error(key, "expected an array of objects");
  }
  return &*at;
}

}  // namespace

std::vector<CheckpointUnit> DescribeUnits(ShardedModel& model) {
  const std::vector<model::Unit>& units = model.transformer().table().units();
  const std::vector<UnitShard>& shards = model.shards();
  std::vector<CheckpointUnit> out;
  for (size_t u = 0; u < units.size(); ++u) {
    out.push_back({units[u].name, units[u].numel, shards[u].padded_numel});
  }
  return out;
}

absl::Status WriteManifest(const std::string& folder, const CheckpointManifest& manifest) {
  nlohmann::json json = {
      {"format", kFormat},
      {"format_version", kFormatVersion},
      {"architecture", manifest.architecture},
      {"ranks", manifest.num_ranks},
      {"policy_version", manifest.policy_version},
      {"step", manifest.step},
      {"optimizer_steps", manifest.optimizer_steps},
      {"driver_state", absl::Base64Escape(manifest.driver_state)},
      {"last_response", absl::Base64Escape(manifest.last_response)},
      {"units", nlohmann::json::array()},
      {"files", nlohmann::json::array()},
  };
  for (const CheckpointUnit& unit : manifest.units) {
    json["units"].push_back(
        {{"name", unit.name}, {"numel", unit.numel}, {"padded_numel", unit.padded_numel}});
  }
  for (const ShardFile& file : manifest.files) {
    json["files"].push_back(
        {{"name", file.name}, {"size_bytes", file.size_bytes}, {"digest", file.digest}});
  }
  return io::WriteFileAtomically(folder + "/manifest.json", json.dump(2) + "\n");
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& folder) {
  const std::string path = folder + "/manifest.json";
  ASSIGN_OR_RETURN(const nlohmann::json json, io::ReadJsonFile(path));
  const io::JsonFields fields(json, path);
  ASSIGN_OR_RETURN(const std::string format, fields.String("format"));
  ASSIGN_OR_RETURN(const int64_t version, fields.Int("format_version"));
  if (format != kFormat || version != kFormatVersion) {
    return fields.Error(
        "format", absl::StrFormat("expected %s of version %d, found %s of version %d", kFormat,
                                  kFormatVersion, format, version));
  }
  CheckpointManifest out;
  ASSIGN_OR_RETURN(out.architecture, fields.String("architecture"));
  ASSIGN_OR_RETURN(const int64_t num_ranks, fields.Int("ranks"));
  ASSIGN_OR_RETURN(out.policy_version, fields.Int("policy_version"));
  ASSIGN_OR_RETURN(out.step, fields.Int("step"));
  ASSIGN_OR_RETURN(out.optimizer_steps, fields.Int("optimizer_steps"));
  ASSIGN_OR_RETURN(out.driver_state, Decode(fields, "driver_state"));
  ASSIGN_OR_RETURN(out.last_response, Decode(fields, "last_response"));
  ASSIGN_OR_RETURN(const nlohmann::json* units, Array(fields, "units"));
  for (size_t i = 0; i < units->size(); ++i) {
    const io::JsonFields unit((*units)[i], absl::StrCat(path, ": units[", i, "]"));
    CheckpointUnit& to = out.units.emplace_back();
    ASSIGN_OR_RETURN(to.name, unit.String("name"));
    ASSIGN_OR_RETURN(to.numel, unit.Int("numel"));
    ASSIGN_OR_RETURN(to.padded_numel, unit.Int("padded_numel"));
  }
  ASSIGN_OR_RETURN(const nlohmann::json* files, Array(fields, "files"));
  for (size_t i = 0; i < files->size(); ++i) {
    const io::JsonFields file((*files)[i], absl::StrCat(path, ": files[", i, "]"));
    ShardFile& to = out.files.emplace_back();
    ASSIGN_OR_RETURN(to.name, file.String("name"));
    ASSIGN_OR_RETURN(to.size_bytes, file.Int("size_bytes"));
    ASSIGN_OR_RETURN(to.digest, file.String("digest"));
    if (to.name.find('/') != std::string::npos) {
      return file.Error("name", "expected the name of a file in the same folder");
    }
  }
  if (num_ranks < 1 || num_ranks != static_cast<int64_t>(out.files.size())) {
    return fields.Error("ranks", absl::StrCat("expected ", out.files.size(),
                                              ", one for each of files; ", "found ", num_ranks));
  }
  if (out.policy_version < 0 || out.step < 0 || out.optimizer_steps < 0) {
    return fields.Error("step", "expected counters that are not negative");
  }
  out.num_ranks = static_cast<int>(num_ranks);
  return out;
}

absl::Status CheckManifest(const CheckpointManifest& manifest, const std::string& folder,
                           int num_ranks, ShardedModel& model) {
  if (manifest.num_ranks != num_ranks) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s was written by %d ranks and this trainer has %d; start it with trainer.ranks: %d",
        folder, manifest.num_ranks, num_ranks, manifest.num_ranks));
  }
  const std::vector<CheckpointUnit> units = DescribeUnits(model);
  if (manifest.units == units) return absl::OkStatus();

  common::v1::UnloadedParams unloaded;
  std::string first;
  const auto note = [&first](const std::string& what) {
    if (first.empty()) first = what;
  };
  const auto find = [](const std::vector<CheckpointUnit>& in, const std::string& name) {
    for (const CheckpointUnit& unit : in) {
      if (unit.name == name) return &unit;
    }
    return static_cast<const CheckpointUnit*>(nullptr);
  };
  for (const CheckpointUnit& unit : units) {
    const CheckpointUnit* found = find(manifest.units, unit.name);
    if (found == nullptr) {
      unloaded.add_missing(unit.name);
      note(absl::StrCat("unit ", unit.name, " is missing"));
    } else if (!(*found == unit)) {
      common::v1::MismatchedParam& mismatch = *unloaded.add_mismatched();
      mismatch.set_name(unit.name);
      mismatch.set_expected(absl::StrCat("float32[", unit.numel, "]"));
      mismatch.set_actual(absl::StrCat("float32[", found->numel, "]"));
      note(absl::StrCat("unit ", unit.name, " has ", found->numel, " elements, expected ",
                        unit.numel));
    }
  }
  for (const CheckpointUnit& unit : manifest.units) {
    if (find(units, unit.name) == nullptr) {
      unloaded.add_unexpected(unit.name);
      note(absl::StrCat("unit ", unit.name, " is not part of the model"));
    }
  }
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat(folder, " is a checkpoint of another model: ", first));
  rpc::AttachDetail(status, unloaded);
  return status;
}

}  // namespace tandem::trainer
