#include "tools/tandem/view/run_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/config/load.h"
#include "common/images/chat/find_placeholders.h"
#include "common/io/file_util.h"
#include "common/io/folder_lock.h"
#include "common/io/json_values.h"
#include "common/io/jsonl.h"
#include "common/io/model_config.h"
#include "common/io/parse_json.h"
#include "common/io/read_file.h"
#include "common/io/whole_lines.h"
#include "common/model/images/image_preparer.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "tools/tandem/view/flat_sample.h"

namespace tandem::view {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Limits of one reply. 500 lines of metrics are about 2 MiB.
constexpr size_t kMaxMetricsLines = 500;
constexpr size_t kMaxSteps = 10000;
constexpr int64_t kMaxSampleBytes = int64_t{4} << 20;
constexpr size_t kDigestDigits = 64;
constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;  // more is refused by LoadRunConfig()

const char* FolderOf(SampleSet set) {
  return set == SampleSet::kEvaluations ? "evaluations" : "rollouts";
}

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
  if (!fs::exists(run_dir + "/config.yaml")) {
    return absl::NotFoundError(
        absl::StrCat(run_dir, ": expected the folder of a run (run_dir); it has no config.yaml"));
  }
  absl::MutexLock lock(&out->mu_);
  RETURN_IF_ERROR(out->ReadConfig());
  out->BeginGeneration();
  for (const std::string& folder : {run_dir + "/model", out->config_.model().path()}) {
    if (out->tokenizer_ == nullptr && fs::exists(folder + "/tokenizer.json")) {
      ASSIGN_OR_RETURN(out->tokenizer_, tokenizer::Tokenizer::Load(folder));
    }
    if (out->placeholders_.placeholder < 0) out->ReadPlaceholders(folder);
  }
  return out;
}

void RunReader::ReadPlaceholders(const std::string& model_folder) {
  const absl::StatusOr<io::ModelConfig> config = io::ReadModelConfig(model_folder);
  if (!config.ok()) return;
  // A model that this build does not know has samples to show all the same.
  const absl::StatusOr<model::ModelSpec> spec = model::ParseModelSpec(config->json, config->path);
  if (!spec.ok() || !spec->vision.has_value()) return;
  placeholders_.placeholder = static_cast<int32_t>(spec->vision->image_token_id);
  const absl::StatusOr<model::ImagePreparer> preparer =
      model::ImagePreparer::Load(model_folder, *spec->vision);
  if (!preparer.ok()) return;
  // Without the tokens between its lines, an image's first line stands for it.
  const absl::StatusOr<images::PlaceholderIds> found = images::FindPlaceholderIds(
      placeholders_.placeholder, preparer->placeholders(), tokenizer_.get());
  if (found.ok()) placeholders_ = *found;
}

absl::Status RunReader::ReadConfig() {
  const std::string path = run_dir_ + "/config.yaml";
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return absl::OkStatus();  // being replaced
  const FileVersion version = {info.st_ino, info.st_size,
                               absl::ToUnixNanos(absl::TimeFromTimespec(info.st_mtim))};
  if (version == config_version_) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::string text, io::ReadFile(path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(config_, config::LoadRunConfig({path}, {}));
  config_text_ = std::move(text);
  config_version_ = version;
  return absl::OkStatus();
}

void RunReader::BeginGeneration() {
  metrics_.clear();
  metrics_end_ = 0;
  // A clock, not a counter: a page that outlives this process must not take the next one's for the
  // generation it knows.
  generation_ = std::max(generation_ + 1, absl::ToUnixMicros(absl::Now()));
}

absl::Status RunReader::ReadMetrics() {
  const std::string path = run_dir_ + "/metrics.jsonl";
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (metrics_end_ > 0) BeginGeneration();
    metrics_changed_s_ = 0;
    return absl::OkStatus();  // the first step is not done
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  // Another or a truncated file: the run started again or resumed from a checkpoint.
  if (info.st_ino != metrics_file_ || info.st_size < metrics_end_) {
    if (metrics_end_ > 0) BeginGeneration();
    metrics_file_ = info.st_ino;
  }
  metrics_changed_s_ = info.st_mtim.tv_sec;
  absl::Status problem;
  RETURN_IF_ERROR(io::ForEachWholeLine(path, metrics_end_, [&](absl::string_view line) {
    mu_.AssertHeld();
    metrics_end_ += static_cast<int64_t>(line.size()) + 1;
    json parsed = io::ParseJson<json>(line).value_or(nullptr);
    if (!parsed.is_object()) {
      problem = absl::DataLossError(absl::StrCat(path, ": byte ", metrics_end_, ": expected JSON"));
      return false;
    }
    metrics_.push_back(std::move(parsed));
    return true;
  }));
  return problem;
}

absl::StatusOr<json> RunReader::Status() {
  // Before the lines: a run that ends in between has written its last one.
  const bool is_held = io::FolderLock::IsHeld(run_dir_);
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(ReadConfig());
  RETURN_IF_ERROR(ReadMetrics());
  const int64_t last_step = metrics_.empty() ? 0 : StepOf(metrics_.back());
  const int64_t total_steps = config_.trainer().total_steps();
  const char* state = is_held ? "running" : last_step >= total_steps ? "finished" : "stopped";
  return json{{"state", state},
              {"last_step", last_step},
              {"total_steps", total_steps},
              {"generation", generation_},
              {"num_lines", metrics_.size()},
              {"changed", metrics_changed_s_}};
}

absl::StatusOr<json> RunReader::Config() {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(ReadConfig());
  return json{{"config", config_text_},
              {"advantage_by_std", config_.algorithm().norm_adv_by_std_in_grpo()}};
}

absl::StatusOr<json> RunReader::Metrics(int64_t generation, int64_t from) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(ReadMetrics());
  const auto total = static_cast<int64_t>(metrics_.size());
  if (generation != generation_ || from < 0 || from > total) from = 0;
  json lines = json::array();
  for (int64_t i = from; i < total && lines.size() < kMaxMetricsLines; ++i) {
    lines.push_back(metrics_[i]);
  }
  return json{
      {"generation", generation_}, {"from", from}, {"total", total}, {"lines", std::move(lines)}};
}

json RunReader::Steps(SampleSet set, int64_t after) const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry :
       fs::directory_iterator(absl::StrCat(run_dir_, "/", FolderOf(set)), error)) {
    int64_t step = 0;
    if (entry.path().extension() == ".jsonl" &&
        absl::SimpleAtoi(entry.path().stem().string(), &step) && step > after) {
      steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end());
  const bool more = steps.size() > kMaxSteps;
  if (more) steps.resize(kMaxSteps);
  return json{{"steps", steps}, {"more", more}};
}

absl::StatusOr<std::string> RunReader::SamplesPath(SampleSet set, int64_t step) const {
  const std::string path = absl::StrCat(run_dir_, "/", FolderOf(set), "/", step, ".jsonl");
  if (!fs::exists(path)) {
    return absl::NotFoundError(
        absl::StrCat("step ", step, " has no ", FolderOf(set), " in ", run_dir_));
  }
  RETURN_IF_ERROR(io::OpenRegularFile(path).status());
  return path;
}

absl::StatusOr<json> RunReader::Samples(SampleSet set, int64_t step, int64_t offset) const {
  ASSIGN_OR_RETURN(const std::string path, SamplesPath(set, step));
  json samples = json::array();
  int64_t end = offset;
  bool more = false;
  absl::Status problem;
  RETURN_IF_ERROR(io::ForEachWholeLine(path, offset, [&](absl::string_view line) {
    json sample = io::ParseJson<json>(line).value_or(nullptr);
    if (!sample.is_object()) {
      problem = absl::InvalidArgumentError(
          absl::StrCat(path, ": byte ", end, ": expected a JSON object"));
      return false;
    }
    end += static_cast<int64_t>(line.size()) + 1;
    FlattenSample(sample);
    DescribeImages(sample, placeholders_);
    TokenTexts texts = Texts(Ids(sample, "response_ids"));
    sample["tokens"] = std::move(texts.texts);
    sample["special"] = std::move(texts.special);
    samples.push_back(std::move(sample));
    more = end - offset >= kMaxSampleBytes;
    return !more;
  }));
  RETURN_IF_ERROR(problem);
  const std::string* const placeholder = tokenizer_ == nullptr || placeholders_.placeholder < 0
                                             ? nullptr
                                             : tokenizer_->IdToToken(placeholders_.placeholder);
  json of_text = placeholder == nullptr ? json(nullptr) : json(*placeholder);
  if (!placeholders_.written.empty()) of_text = placeholders_.written;
  return json{{"samples", std::move(samples)},
              {"image_placeholder", std::move(of_text)},
              {"next", more ? json(end) : json(nullptr)}};
}

absl::StatusOr<ServedImage> RunReader::Image(SampleSet set, int64_t step,
                                             const std::string& digest) const {
  if (digest.size() != kDigestDigits ||
      !std::all_of(digest.begin(), digest.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a digest of ", kDigestDigits, " hexadecimal digits"));
  }
  ASSIGN_OR_RETURN(const std::string path, SamplesPath(set, step));
  std::string source;
  RETURN_IF_ERROR(io::ForEachWholeLine(path, /*offset=*/0, [&](absl::string_view line) {
    source = FindImageSource(line, digest);
    return source.empty();
  }));
  if (source.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no sample of ", FolderOf(set), " of step ", step, " names this image"));
  }
  // The run's own copy is there wherever the folder was moved to.
  const std::string kept = absl::StrCat("images/", digest);
  if (fs::exists(absl::StrCat(run_dir_, "/", kept))) {
    return ReadServedImage(kept, run_dir_, digest);
  }
  return ReadServedImage(source, io::ParentFolder(path), digest);
}

absl::StatusOr<std::vector<int32_t>> RunReader::SampleIds(const SampleKey& key) const {
  ASSIGN_OR_RETURN(const std::string path, SamplesPath(key.set, key.step));
  std::vector<int32_t> ids;
  int64_t count = 0;
  RETURN_IF_ERROR(io::ForEachJsonLine(
      path,
      [&](const io::JsonFields& row) {
        if (count++ == key.sample) {
          json sample = row.json();
          FlattenSample(sample);
          if (sample.contains("images")) {
            return absl::UnimplementedError(
                "the model's view of a sample with images is not computed");
          }
          ids = Ids(sample, "prompt_ids");
          for (const int32_t id : Ids(sample, "response_ids")) ids.push_back(id);
        }
        return absl::OkStatus();
      },
      io::kRunFile));
  if (key.sample < 0 || key.sample >= count) {
    return absl::OutOfRangeError(
        absl::StrCat("sample ", key.sample, ": step ", key.step, " has samples 0 to ", count - 1));
  }
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
  absl::MutexLock lock(&mu_);
  return fs::exists(trained + "/config.json") ? trained : config_.model().path();
}

std::string RunReader::FamilyFile() const {
  absl::MutexLock lock(&mu_);
  return config_.model().family_file();
}

}  // namespace tandem::view
