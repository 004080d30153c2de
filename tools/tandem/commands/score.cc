// tandem score: log-probs of given tokens, computed by the trainer or by the rollout.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/io/jsonl.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/model_session.h"

namespace tandem::commands {
namespace {

struct ScoreOptions {
  ModelOptions model;
  std::string input;
  std::string side = "rollout";
};

// Sequences that go to the trainer in one call.
constexpr int kBatch = 64;

using Sequence = std::vector<uint32_t>;

absl::StatusOr<std::vector<Sequence>> ReadSequences(const std::string& path) {
  std::vector<Sequence> sequences;
  RETURN_IF_ERROR(io::ForEachJsonLine(path, [&](const io::JsonFields& row) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, row.IntList("ids"));
    Sequence& sequence = sequences.emplace_back();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] > UINT32_MAX) {
        return row.Error("ids", absl::StrCat("[", i, "]: ", ids[i], " is not a token id"));
      }
      sequence.push_back(static_cast<uint32_t>(ids[i]));
    }
    return absl::OkStatus();
  }));
  return sequences;
}

template <typename LogProbs>
void Print(const LogProbs& logprobs) {
  std::vector<float> values(logprobs.begin(), logprobs.end());
  std::printf("%s", io::ToJsonLine({{"logprobs", values}}).c_str());
}

absl::Status ScoreByTrainer(Session& session, const std::vector<Sequence>& sequences) {
  for (size_t begin = 0; begin < sequences.size(); begin += kBatch) {
    trainer::v1::ComputeLogProbsRequest request;
    for (size_t i = begin; i < std::min(sequences.size(), begin + kBatch); ++i) {
      request.add_sequences()->mutable_token_ids()->Add(sequences[i].begin(), sequences[i].end());
    }
    ASSIGN_OR_RETURN(const auto response, session.trainer().ComputeLogProbs(request));
    for (const auto& scored : response.sequences()) Print(scored.logprobs());
  }
  return absl::OkStatus();
}

absl::Status ScoreByRollout(Session& session, const std::vector<Sequence>& sequences) {
  auto stub =
      rollout::v1::RolloutService::NewStub(rpc::MakeChannel(session.fleet().replicas()[0].address));
  for (size_t i = 0; i < sequences.size(); ++i) {
    rollout::v1::ScoreRequest request;
    request.mutable_token_ids()->Add(sequences[i].begin(), sequences[i].end());
    rollout::v1::ScoreResponse response;
    auto context = rpc::MakeContext(absl::Minutes(10));
    RETURN_IF_ERROR(rpc::FromGrpcStatus(stub->Score(context.get(), request, &response)))
        << "sequence " << i + 1 << " of the input";
    Print(response.logprobs());
  }
  return absl::OkStatus();
}

absl::Status RunScore(const ScoreOptions& options) {
  Session session;
  ScratchFolder scratch(&session);
  ASSIGN_OR_RETURN(const std::vector<Sequence> sequences, ReadSequences(options.input));
  const bool trainer = options.side == "trainer";
  config::v1::RunConfig config;
  RETURN_IF_ERROR(session.Explain(OpenModelSession(
      options.model, trainer ? Side::kTrainer : Side::kRollout, scratch, session, config)));
  return session.Explain(trainer ? ScoreByTrainer(session, sequences)
                                 : ScoreByRollout(session, sequences));
}

}  // namespace

void AddScore(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("score", "Computes log-probs of given tokens");
  auto options = std::make_shared<ScoreOptions>();
  AddModelOptions(*command, options->model);
  command->add_option("--input", options->input, R"(JSONL of {"ids"}; /dev/stdin for a pipe)")
      ->required();
  command->add_option("--side", options->side, "Service that computes: trainer or rollout")
      ->check(CLI::IsMember({"trainer", "rollout"}))
      ->capture_default_str();
  command
      ->add_flag_callback(
          "--json", [] {}, "Accepted for uniformity: the output is always JSON")
      ->group("");
  command->callback([&runner, options] { runner = [options] { return RunScore(*options); }; });
}

}  // namespace tandem::commands
