#include "tools/tandem/driver/held_out_loss.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/pair_loss.h"

namespace tandem::driver {
namespace {

// Tokens of one call: small enough for any deadline, large enough to fill the ranks.
constexpr int64_t kTokensPerCall = 65536;

using trainer::v1::ComputeLogProbsRequest;

// Bytes of images with which a call is made: a message has at most 16 MiB, and the row that is added
// last up to ImageReader::kMaxRowBytes.
constexpr int64_t kImageBytesPerCall = int64_t{1} << 19;

// Returns the bytes of the images that the sequence shows, the first ones of `images`.
absl::StatusOr<int64_t> AddSequence(const GivenSequence& sequence,
                                    const std::vector<PromptImage>& images,
                                    ComputeLogProbsRequest& request) {
  ComputeLogProbsRequest::Sequence& added = *request.add_sequences();
  size_t num_images = 0;
  for (const TokenRun& run : sequence) {
    added.mutable_token_ids()->Add(run.token_ids.begin(), run.token_ids.end());
    num_images += run.num_images;
  }
  int64_t num_bytes = 0;
  for (size_t i = 0; i < num_images; ++i) {
    ASSIGN_OR_RETURN(std::string file, ReadImageFile(images[i]));
    num_bytes += static_cast<int64_t>(file.size());
    added.add_images()->set_data(std::move(file));
  }
  return num_bytes;
}

int64_t NumTokens(const GivenSequence& sequence) {
  int64_t count = 0;
  for (const TokenRun& run : sequence) count += static_cast<int64_t>(run.token_ids.size());
  return count;
}

// log-prob t is that of token t + 1: the first token has none.
int64_t NumTrained(const GivenSequence& sequence) {
  int64_t count = 0;
  int64_t position = 0;
  for (const TokenRun& run : sequence) {
    const int64_t size = static_cast<int64_t>(run.token_ids.size());
    if (run.is_trained) count += position == 0 ? size - 1 : size;
    position += size;
  }
  return count;
}

double SumTrained(const GivenSequence& sequence,
                  const trainer::v1::ComputeLogProbsResponse::Sequence& scored) {
  double sum = 0;
  int64_t position = 0;
  for (const TokenRun& run : sequence) {
    for (size_t i = 0; i < run.token_ids.size(); ++i, ++position) {
      if (run.is_trained && position > 0) sum += scored.logprobs(static_cast<int>(position - 1));
    }
  }
  return sum;
}

}  // namespace

HeldOutLoss::HeldOutLoss(const config::v1::RunConfig& config, const std::vector<Prompt>& rows,
                         bool by_preference, Score score)
    : dpo_(config.dpo()), by_preference_(by_preference), score_(std::move(score)) {
  const size_t limit = static_cast<size_t>(config.data().test_limit());
  for (const Prompt& row : rows) {
    if (limit > 0 && rows_.size() == limit) break;
    if (row.given.empty()) continue;
    rows_.push_back(row.given);
    images_.push_back(row.images);
  }
}

absl::StatusOr<std::vector<double>> HeldOutLoss::SumLogProbs(bool of_reference) {
  std::vector<double> sums;
  std::vector<const GivenSequence*> asked;
  ComputeLogProbsRequest request;
  int64_t tokens = 0;
  int64_t image_bytes = 0;
  const auto flush = [&]() -> absl::Status {
    if (asked.empty()) return absl::OkStatus();
    request.set_reference(of_reference);
    ASSIGN_OR_RETURN(const auto response, score_(request));
    if (response.sequences_size() != static_cast<int>(asked.size())) {
      return absl::InternalError(absl::StrCat("the trainer returned log-probs of ",
                                              response.sequences_size(), " sequences; expected ",
                                              asked.size()));
    }
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto& scored = response.sequences(static_cast<int>(i));
      if (scored.logprobs_size() != NumTokens(*asked[i]) - 1) {
        return absl::InternalError(absl::StrCat("the trainer returned ", scored.logprobs_size(),
                                                " log-probs of a sequence of ",
                                                NumTokens(*asked[i]), " tokens"));
      }
      sums.push_back(SumTrained(*asked[i], scored));
    }
    asked.clear();
    request.Clear();
    tokens = image_bytes = 0;
    return absl::OkStatus();
  };
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (const GivenSequence& sequence : rows_[row]) {
      asked.push_back(&sequence);
      ASSIGN_OR_RETURN(const int64_t added, AddSequence(sequence, images_[row], request));
      image_bytes += added;
      tokens += NumTokens(sequence);
      if (tokens >= kTokensPerCall || image_bytes >= kImageBytesPerCall) {
        RETURN_IF_ERROR(flush());
      }
    }
  }
  RETURN_IF_ERROR(flush());
  return sums;
}

absl::Status HeldOutLoss::Measure(Metrics& metrics) {
  if (empty()) return absl::OkStatus();
  return by_preference_ ? MeasurePairs(metrics) : MeasureTokens(metrics);
}

absl::Status HeldOutLoss::MeasureTokens(Metrics& metrics) {
  ASSIGN_OR_RETURN(const std::vector<double> sums, SumLogProbs(/*of_reference=*/false));
  double sum = 0;
  int64_t tokens = 0;
  for (const double one : sums) sum += one;
  for (const std::vector<GivenSequence>& row : rows_) {
    for (const GivenSequence& sequence : row) tokens += NumTrained(sequence);
  }
  if (tokens > 0) metrics["val/loss"] = -sum / static_cast<double>(tokens);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> HeldOutLoss::ScorePairs(bool of_reference) {
  ASSIGN_OR_RETURN(std::vector<double> scores, SumLogProbs(of_reference));
  if (!IsLengthNormalized(dpo_.loss_type())) return scores;
  size_t index = 0;
  for (const std::vector<GivenSequence>& row : rows_) {
    for (const GivenSequence& sequence : row) {
      scores[index++] /= static_cast<double>(std::max<int64_t>(1, NumTrained(sequence)));
    }
  }
  return scores;
}

absl::Status HeldOutLoss::MeasurePairs(Metrics& metrics) {
  if (reference_.empty()) {
    ASSIGN_OR_RETURN(reference_, ScorePairs(/*of_reference=*/true));
  }
  ASSIGN_OR_RETURN(const std::vector<double> policy, ScorePairs(/*of_reference=*/false));
  double loss = 0;
  double preferred = 0;
  for (size_t chosen = 0; chosen < policy.size(); chosen += 2) {
    const size_t rejected = chosen + 1;
    const double margin = dpo_.beta() * ((policy[chosen] - reference_[chosen]) -
                                         (policy[rejected] - reference_[rejected]));
    loss += PairLoss(dpo_, margin);
    if (margin > 0) ++preferred;
  }
  const double pairs = static_cast<double>(rows_.size());
  metrics["val/loss"] = loss / pairs;
  metrics["val/accuracy"] = preferred / pairs;
  return absl::OkStatus();
}

}  // namespace tandem::driver
