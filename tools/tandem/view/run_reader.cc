#include "tools/tandem/view/run_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/config/load.h"
#include "common/io/json_values.h"
#include "common/io/jsonl.h"
#include "common/io/parse_json.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::view {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

int64_t StepOf(const json& line) { return io::IntegerOr(line, "training/global_step", -1); }

std::vector<int32_t> Ids(const json& line, const char* key) {
  std::vector<int32_t> out;
  const auto found = line.find(key);
  if (found == line.end() || !found->is_array()) return out;
  for (const auto& id : *found) {
    if (id.is_number_integer()) out.push_back(id.get<int32_t>());
  }
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunReader>> RunReader::Open(const std::string& run_dir) {
  std::unique_ptr<RunReader> out(new RunReader(run_dir));
  const std::string path = run_dir + "/config.yaml";
  if (!fs::exists(path)) {
    return absl::NotFoundError(
        absl::StrCat(run_dir, ": expected the folder of a run (run_dir); it has no config.yaml"));
  }
  ASSIGN_OR_RETURN(out->config_text_, io::ReadFile(path));
  ASSIGN_OR_RETURN(out->config_, config::LoadRunConfig({path}, {}));
  for (const std::string& folder : {run_dir + "/model", out->config_.model().path()}) {
    if (out->tokenizer_ == nullptr && fs::exists(folder + "/tokenizer.json")) {
      ASSIGN_OR_RETURN(out->tokenizer_, tokenizer::Tokenizer::Load(folder));
    }
  }
  return out;
}

absl::Status RunReader::ReadMetrics() {
  const std::string path = run_dir_ + "/metrics.jsonl";
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    metrics_.clear();
    metrics_end_ = 0;
    return absl::OkStatus();  // the first step is not done
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  // Another or a truncated file: the run started again or resumed from a checkpoint.
  if (info.st_ino != metrics_file_ || info.st_size < metrics_end_) {
    metrics_.clear();
    metrics_end_ = 0;
    metrics_file_ = info.st_ino;
  }
  std::ifstream file(path, std::ios::binary);
  file.seekg(metrics_end_);
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // at the end: a line that is being written
    metrics_end_ += static_cast<int64_t>(line.size()) + 1;
    json parsed = io::ParseJson<json>(line).value_or(nullptr);
    if (!parsed.is_object()) {
      return absl::DataLossError(absl::StrCat(path, ": byte ", metrics_end_, ": expected JSON"));
    }
    metrics_.push_back(std::move(parsed));
  }
  return absl::OkStatus();
}

absl::StatusOr<json> RunReader::Run() {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir_ + "/rollouts", error)) {
    int64_t step = 0;
    if (entry.path().extension() == ".jsonl" &&
        absl::SimpleAtoi(entry.path().stem().string(), &step)) {
      steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end());
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(ReadMetrics());
  return json{{"name", fs::path(run_dir_).lexically_normal().filename().string()},
              {"config", config_text_},
              {"steps", steps},
              {"last_step", metrics_.empty() ? 0 : StepOf(metrics_.back())},
              {"total_steps", config_.trainer().total_steps()},
              {"advantage_by_std", config_.algorithm().norm_adv_by_std_in_grpo()}};
}

absl::StatusOr<json> RunReader::Metrics(int64_t after) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(ReadMetrics());
  json lines = json::array();
  for (const json& line : metrics_) {
    if (StepOf(line) > after) lines.push_back(line);
  }
  return json{{"lines", std::move(lines)}};
}

absl::StatusOr<std::vector<json>> RunReader::Lines(int64_t step) const {
  const std::string path = absl::StrCat(run_dir_, "/rollouts/", step, ".jsonl");
  if (!fs::exists(path)) {
    return absl::NotFoundError(absl::StrCat("step ", step, " has no rollouts in ", run_dir_));
  }
  return io::ReadJsonLines(path, io::kRunFile);
}

absl::StatusOr<json> RunReader::Rollouts(int64_t step) const {
  ASSIGN_OR_RETURN(std::vector<json> samples, Lines(step));
  for (json& sample : samples) {
    TokenTexts texts = Texts(Ids(sample, "response_ids"));
    sample["tokens"] = std::move(texts.texts);
    sample["special"] = std::move(texts.special);
  }
  return json{{"samples", std::move(samples)}};
}

absl::StatusOr<std::vector<int32_t>> RunReader::SampleIds(int64_t step, int64_t sample) const {
  ASSIGN_OR_RETURN(const std::vector<json> samples, Lines(step));
  if (sample < 0 || sample >= static_cast<int64_t>(samples.size())) {
    return absl::OutOfRangeError(absl::StrCat("sample ", sample, ": step ", step,
                                              " has samples 0 to ",
                                              static_cast<int64_t>(samples.size()) - 1));
  }
  std::vector<int32_t> ids = Ids(samples[sample], "prompt_ids");
  for (const int32_t id : Ids(samples[sample], "response_ids")) ids.push_back(id);
  return ids;
}

TokenTexts RunReader::Texts(absl::Span<const int32_t> ids) const {
  TokenTexts out;
  if (tokenizer_ == nullptr) {
    for (const int32_t id : ids) out.texts.push_back(absl::StrCat("<", id, ">"));
    return out;
  }
  tokenizer::IncrementalDecoder decoder(*tokenizer_, /*skip_special_tokens=*/false);
  for (size_t i = 0; i < ids.size(); ++i) {
    absl::StatusOr<std::string> text = decoder.Push(ids[i]);
    out.texts.push_back(text.ok() ? *std::move(text) : absl::StrCat("<", ids[i], ">"));
    if (tokenizer_->IsSpecial(ids[i])) out.special.push_back(static_cast<int64_t>(i));
  }
  absl::StatusOr<std::string> rest = decoder.Finish();
  if (rest.ok() && !out.texts.empty()) out.texts.back() += *rest;
  return out;
}

std::string RunReader::ModelFolder() const {
  const std::string trained = run_dir_ + "/model";
  return fs::exists(trained + "/config.json") ? trained : config_.model().path();
}

}  // namespace tandem::view
