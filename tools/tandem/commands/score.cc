// tandem score: log-probs of given tokens, computed by the trainer or by the rollout.
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/io/jsonl.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/image_url_option.h"
#include "tools/tandem/commands/model_session.h"
#include "tools/tandem/commands/row_images.h"

namespace tandem::commands {
namespace {

struct ScoreOptions {
  ModelOptions model;
  std::string input;
  std::string side = "rollout";
  bool allow_image_urls = false;
};

// Sequences that go to the trainer in one call, and are printed at once.
constexpr int kBatch = 64;

struct Sequence {
  std::vector<uint32_t> token_ids;
  std::vector<ImageFile> images;  // one for each run of placeholders
};

absl::StatusOr<std::vector<Sequence>> ReadSequences(const std::string& path,
                                                    ImageFetching fetching) {
  std::vector<Sequence> sequences;
  const RowImages images(path, std::move(fetching));
  RETURN_IF_ERROR(io::ForEachJsonLine(path, [&](const io::JsonFields& row) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, row.IntList("ids"));
    Sequence& sequence = sequences.emplace_back();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] > UINT32_MAX) {
        return row.Error("ids", absl::StrCat("[", i, "]: ", ids[i], " is not a token id"));
      }
      sequence.token_ids.push_back(static_cast<uint32_t>(ids[i]));
    }
    ASSIGN_OR_RETURN(sequence.images, images.Read(row));
    return absl::OkStatus();
  }));
  return sequences;
}

// Log-probs of each sequence, in order.
using Scores = std::vector<std::vector<float>>;

template <typename LogProbs>
std::vector<float> FloatsOf(const LogProbs& logprobs) {
  return {logprobs.begin(), logprobs.end()};
}

absl::StatusOr<Scores> ScoreByTrainer(Session& session, absl::Span<const Sequence> sequences) {
  trainer::v1::ComputeLogProbsRequest request;
  for (const Sequence& sequence : sequences) {
    auto* to = request.add_sequences();
    to->mutable_token_ids()->Add(sequence.token_ids.begin(), sequence.token_ids.end());
    for (const ImageFile& image : sequence.images) to->add_images()->set_data(*image);
  }
  ASSIGN_OR_RETURN(const auto response, session.trainer().ComputeLogProbs(request));
  Scores scores;
  for (const auto& scored : response.sequences()) scores.push_back(FloatsOf(scored.logprobs()));
  if (scores.size() == sequences.size()) return scores;
  return absl::InternalError(absl::StrCat("expected the log-probs of ", sequences.size(),
                                          " sequences of the trainer, found ", scores.size()));
}

// `first`: the number of the first of the sequences, for errors.
absl::StatusOr<Scores> ScoreByRollout(Session& session, absl::Span<const Sequence> sequences,
                                      size_t first) {
  auto stub =
      rollout::v1::RolloutService::NewStub(rpc::MakeChannel(session.fleet().replicas()[0].address));
  Scores scores;
  for (const Sequence& sequence : sequences) {
    rollout::v1::ScoreRequest request;
    request.mutable_token_ids()->Add(sequence.token_ids.begin(), sequence.token_ids.end());
    for (const ImageFile& image : sequence.images) request.add_images()->set_data(*image);
    rollout::v1::ScoreResponse response;
    auto context = rpc::MakeContext(absl::Minutes(10));
    RETURN_IF_ERROR(rpc::FromGrpcStatus(stub->Score(context.get(), request, &response)))
        << "sequence " << first + scores.size() + 1 << " of the input";
    scores.push_back(FloatsOf(response.logprobs()));
  }
  return scores;
}

// Scores a batch after another, and prints each.
absl::Status ScoreAndPrint(Session& session, Side side, absl::Span<const Sequence> sequences) {
  for (size_t begin = 0; begin < sequences.size(); begin += kBatch) {
    const absl::Span<const Sequence> batch = sequences.subspan(begin, kBatch);
    Scores by_trainer, by_rollout;
    if (side != Side::kRollout) {
      ASSIGN_OR_RETURN(by_trainer, ScoreByTrainer(session, batch));
    }
    if (side != Side::kTrainer) {
      ASSIGN_OR_RETURN(by_rollout, ScoreByRollout(session, batch, begin));
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      nlohmann::json line;
      if (side == Side::kBoth) {
        line = {{"trainer", by_trainer[i]}, {"rollout", by_rollout[i]}};
      } else {
        line = {{"logprobs", side == Side::kTrainer ? by_trainer[i] : by_rollout[i]}};
      }
      std::printf("%s", io::ToJsonLine(line).c_str());
    }
  }
  return absl::OkStatus();
}

absl::Status RunScore(const ScoreOptions& options) {
  Session session;
  ScratchFolder scratch(&session);
  ASSIGN_OR_RETURN(const std::vector<Sequence> sequences,
                   ReadSequences(options.input, FetchingIf(options.allow_image_urls, [&session] {
                                   return session.interrupted();
                                 })));
  const Side side = options.side == "both"      ? Side::kBoth
                    : options.side == "trainer" ? Side::kTrainer
                                                : Side::kRollout;
  config::v1::RunConfig config;
  RETURN_IF_ERROR(session.Explain(OpenModelSession(options.model, side, scratch, session, config)));
  return session.Explain(ScoreAndPrint(session, side, sequences));
}

}  // namespace

void AddScore(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("score", "Computes log-probs of given tokens");
  auto options = std::make_shared<ScoreOptions>();
  AddModelOptions(*command, options->model);
  command
      ->add_option("--input", options->input,
                   R"(JSONL of {"ids"}, with "images"; /dev/stdin for a pipe)")
      ->required();
  AddImageUrlsOption(*command, options->allow_image_urls);
  command
      ->add_option("--side", options->side,
                   "Service that computes: trainer, rollout, or both beside each other")
      ->check(CLI::IsMember({"trainer", "rollout", "both"}))
      ->capture_default_str();
  command
      ->add_flag_callback(
          "--json", [] {}, "Accepted for uniformity: the output is always JSON")
      ->group("");
  command->callback([&runner, options] { runner = [options] { return RunScore(*options); }; });
}

}  // namespace tandem::commands
