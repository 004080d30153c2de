#include "tools/tandem/view/inspector.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/io/atomic_file.h"
#include "common/io/json_text.h"
#include "common/io/read_file.h"
#include "common/rpc/child_process.h"
#include "common/status/status_macros.h"

namespace tandem::view {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxKept = 4;
constexpr absl::Duration kPatience = absl::Minutes(2);

}  // namespace

Inspector::Inspector(const RunReader& reader, std::string program)
    : reader_(reader), program_(std::move(program)) {
  std::string pattern = (fs::temp_directory_path() / "tandem-view-XXXXXX").string();
  if (mkdtemp(pattern.data()) != nullptr) folder_ = pattern;
}

Inspector::~Inspector() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

absl::StatusOr<std::string> Inspector::Find(const SampleKey& key) {
  if (folder_.empty()) return absl::UnavailableError("cannot create a temporary folder");
  const auto path_of = [&](const SampleKey& of) {
    return absl::StrCat(folder_, "/", static_cast<int>(of.set), "-", of.step, "-", of.sample);
  };
  const std::string path = path_of(key);
  if (std::find(found_.begin(), found_.end(), key) != found_.end()) return path;

  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, reader_.SampleIds(key));
  RETURN_IF_ERROR(io::WriteFileAtomically(path + ".ids", io::JsonText(nlohmann::json(ids))));
  rpc::ChildProcessOptions options;
  options.name = "tandem-inspect";
  options.argv = {program_,   "--model",      reader_.ModelFolder(), "--input",    path + ".ids",
                  "--output", path + ".json", "--attention",         path + ".bin"};
  if (const std::string families = reader_.FamilyFile(); !families.empty()) {
    options.argv.insert(options.argv.end(), {"--family-file", families});
  }
  options.log_path = path + ".log";
  ASSIGN_OR_RETURN(const auto child, rpc::ChildProcess::Start(std::move(options)));
  if (!child->Wait(kPatience)) {
    return absl::DeadlineExceededError("the model took longer than two minutes for the sample");
  }
  if (!child->ExitStatus().ok()) {
    absl::StatusOr<std::string> said = io::ReadFile(path + ".log");
    return absl::FailedPreconditionError(said.ok() && !said->empty()
                                             ? std::string(absl::StripAsciiWhitespace(*said))
                                             : child->ExitDescription());
  }
  found_.push_back(key);
  if (found_.size() > kMaxKept) {
    std::error_code ignored;
    for (const char* suffix : {".ids", ".json", ".bin", ".log"}) {
      fs::remove(path_of(found_.front()) + suffix, ignored);
    }
    found_.pop_front();
  }
  return path;
}

absl::StatusOr<nlohmann::json> Inspector::Inspect(const SampleKey& key) {
  absl::MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(const std::string path, Find(key));
  ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path + ".json"));
  nlohmann::json found = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!found.is_object()) return absl::InternalError("tandem-inspect wrote no JSON object");
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, reader_.SampleIds(key));
  found["tokens"] = reader_.Texts(ids).texts;
  found["model"] = reader_.ModelFolder();
  return found;
}

absl::StatusOr<std::string> Inspector::Attention(const SampleKey& key, int64_t layer) {
  ASSIGN_OR_RETURN(const nlohmann::json found, Inspect(key));
  const int64_t num_layers = found.value("num_layers", int64_t{0});
  if (layer < 0 || layer >= num_layers) {
    return absl::OutOfRangeError(
        absl::StrCat("layer ", layer, ": the model has layers 0 to ", num_layers - 1));
  }
  const auto length = static_cast<int64_t>(found["tokens"].size());
  std::string bytes(static_cast<size_t>(found.value("num_heads", int64_t{0}) * length * length),
                    '\0');
  absl::MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(const std::string path, Find(key));
  std::ifstream file(path + ".bin", std::ios::binary);
  file.seekg(layer * static_cast<int64_t>(bytes.size()));
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return absl::DataLossError("the file of attention weights is too short");
  }
  return bytes;
}

}  // namespace tandem::view
