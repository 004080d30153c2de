#include "services/trainer/service/rank_worker.h"

#include <ATen/Context.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/shard_writer.h"
#include "common/probe/diagnostics_service.h"
#include "common/probe/group_probe.h"
#include "common/rpc/proto_duration.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "services/trainer/checkpoint/hugging_face_export.h"
#include "services/trainer/checkpoint/load_shard.h"
#include "services/trainer/data/batch_images.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {
namespace {

RankResult Fatal(absl::Status status) { return {std::move(status), true, ""}; }
RankResult Refused(absl::Status status) { return {std::move(status), false, ""}; }
RankResult Done(std::string payload = "") { return {absl::OkStatus(), false, std::move(payload)}; }

struct TrainStepCommand {
  v1::TrainStepHeader header;
  std::vector<common::v1::Sample> samples;
  std::vector<std::string> images;  // files
};

absl::StatusOr<TrainStepCommand> DecodeTrainStep(const std::string& payload) {
  google::protobuf::io::ArrayInputStream stream(payload.data(), static_cast<int>(payload.size()));
  TrainStepCommand out;
  bool clean_end = false;
  v1::TrainStepRequest request;
  while (google::protobuf::util::ParseDelimitedFromZeroCopyStream(&request, &stream, &clean_end)) {
    if (request.has_header()) {
      out.header = std::move(*request.mutable_header());
    } else if (request.has_image()) {
      out.images.push_back(std::move(*request.mutable_image()->mutable_data()));
    } else {
      out.samples.push_back(std::move(*request.mutable_sample()));
    }
    request.Clear();
  }
  if (!clean_end) return absl::InternalError("cannot parse the command of a training step");
  return out;
}

}  // namespace

absl::StatusOr<std::string> EncodeTrainStep(const v1::TrainStepHeader& header,
                                            const std::vector<common::v1::Image>& images,
                                            const std::vector<common::v1::Sample>& samples) {
  std::string out;
  google::protobuf::io::StringOutputStream stream(&out);
  v1::TrainStepRequest request;
  *request.mutable_header() = header;
  request.mutable_header()->clear_driver_state();  // the leader's to keep
  const auto write = [&request, &stream] {
    return google::protobuf::util::SerializeDelimitedToZeroCopyStream(request, &stream);
  };
  bool written = write();
  for (const common::v1::Image& image : images) {
    *request.mutable_image() = image;
    written = written && write();
  }
  for (const common::v1::Sample& sample : samples) {
    *request.mutable_sample() = sample;
    written = written && write();
  }
  if (!written) return absl::InternalError("cannot serialize a sample");
  return out;
}

RankWorker::RankWorker(TrainerEngine& engine, RankPublisher& publisher,
                       const config::v1::RunConfig& config)
    : engine_(engine), publisher_(publisher), model_path_(config.model().path()) {}

RankResult RankWorker::Handle(const RankCommand& command) {
  RankResult result;
  const telemetry::ScopedTraceContext trace(command.trace);
  const telemetry::ScopedSpan span(Name(command.opcode));
  try {
    result = Run(command);
  } catch (const std::exception& error) {
    const absl::Status thrown = StatusOf(error);
    result = Fatal(
        absl::Status(thrown.code(), absl::StrCat("rank ", engine_.mesh().rank(), ": ",
                                                 Name(command.opcode), ": ", thrown.message())));
  }
  if (result.fatal) engine_.mesh().Abort(result.status.message());
  return result;
}

RankResult RankWorker::Run(const RankCommand& command) {
  switch (command.opcode) {
    case Opcode::kPing:
    case Opcode::kStop:
      return Done();
    case Opcode::kTrainStep:
      return TrainStep(command.payload);
    case Opcode::kComputeLogProbs:
      return ComputeLogProbs(command.payload);
    case Opcode::kPublish:
      return Publish(command.payload);
    case Opcode::kDigest:
      return Digest();
    case Opcode::kExport:
      return Export(command.payload);
    case Opcode::kSnapshot:
      return Snapshot(command.payload);
    case Opcode::kSnapshotState:
      return TellSnapshotState(command.payload == "wait");
    case Opcode::kVerifyShard:
      return VerifyShard(command.payload);
    case Opcode::kReadShard:
      return ReadShard(command.payload);
    case Opcode::kReset:
      return Reset();
    case Opcode::kReach:
      return Reach(command.payload);
    case Opcode::kProbe:
      return Probe(command.payload);
  }
  return Fatal(
      absl::InternalError(absl::StrCat("unknown command ", static_cast<int64_t>(command.opcode),
                                       "; run the same release on all ranks")));
}

std::shared_ptr<BatchImages> RankWorker::MakeImages() {
  // The leader has prepared every image with the same folder.
  return std::make_shared<BatchImages>(*engine_.pixels().value(), *engine_.spec().vision);
}

RankResult RankWorker::TrainStep(const std::string& payload) {
  absl::StatusOr<TrainStepCommand> command = DecodeTrainStep(payload);
  if (!command.ok()) return Fatal(command.status());
  std::shared_ptr<BatchImages> images;
  for (std::string& file : command->images) {
    if (images == nullptr) images = MakeImages();
    images->Add(std::move(file));
  }
  absl::StatusOr<StepResult> result =
      engine_.TrainStep(command->header, MakeTrainingBatch(command->samples, std::move(images)));
  if (!result.ok()) return Fatal(result.status());
  v1::TrainStepResponse report;
  report.set_step(command->header.step());
  report.set_policy_version(result->weights_changed ? 1 : 0);  // by how much it grows
  report.mutable_metrics()->insert(result->metrics.begin(), result->metrics.end());
  return Done(report.SerializeAsString());
}

RankResult RankWorker::ComputeLogProbs(const std::string& payload) {
  v1::ComputeLogProbsRequest request;
  if (!request.ParseFromString(payload)) return Fatal(absl::InternalError("garbled command"));
  TrainingBatch batch;
  for (auto& sequence : *request.mutable_sequences()) {
    Sequence& added = batch.sequences.emplace_back(MakeScoredSequence(
        {sequence.token_ids().begin(), sequence.token_ids().end()}, sequence.temperature()));
    if (sequence.images().empty()) continue;
    if (batch.images == nullptr) batch.images = MakeImages();
    std::vector<int64_t> images;
    for (common::v1::Image& image : *sequence.mutable_images()) {
      images.push_back(batch.images->Add(std::move(*image.mutable_data())));
    }
    AddImages(std::move(images), *batch.images, added);
  }
  absl::StatusOr<std::vector<std::vector<float>>> logprobs =
      engine_.ComputeLogProbs(batch, request.reference());
  if (!logprobs.ok()) return Fatal(logprobs.status());
  if (engine_.mesh().rank() != 0) return Done();  // the leader's own answer is enough
  v1::ComputeLogProbsResponse response;
  for (const std::vector<float>& values : *logprobs) {
    response.add_sequences()->mutable_logprobs()->Add(values.begin(), values.end());
  }
  return Done(response.SerializeAsString());
}

RankResult RankWorker::Publish(const std::string& payload) {
  v1::PublishWeightsRequest request;
  if (!request.ParseFromString(payload)) return Fatal(absl::InternalError("garbled command"));
  absl::StatusOr<v1::PublishWeightsResponse> response = publisher_.Publish(request);
  if (response.ok()) return Done(response->SerializeAsString());
  // Returns a rollout's failure to the caller; only our own broken group ends the trainer.
  return engine_.mesh().status().ok() ? Refused(response.status()) : Fatal(response.status());
}

RankResult RankWorker::Digest() {
  const absl::StatusOr<v1::HeldDigests> held = publisher_.DigestHeld();
  return held.ok() ? Done(held->SerializeAsString()) : Refused(held.status());
}

RankResult RankWorker::Export(const std::string& path) {
  const comm::DeviceMesh& mesh = engine_.mesh();
  if (mesh.replicate().rank() != 0) return Done();  // the first copy of the model is written
  HuggingFaceExport options;
  options.path = path;
  options.source_folder = model_path_;
  options.dtype = engine_.compute_dtype();
  absl::StatusOr<ExportResult> result = ExportHuggingFace(engine_.policy(), mesh, options);
  if (!result.ok()) return Fatal(result.status());
  if (!result->written.ok()) return Refused(result->written);
  return Done(absl::StrCat(result->size_bytes));
}

RankResult RankWorker::Snapshot(const std::string& folder) {
  if (!engine_.writes_checkpoints()) return Done();  // another rank holds the same
  SnapshotOptions options;
  options.folder = folder;
  options.name = checkpoint::ShardName(engine_.mesh().rank(), engine_.mesh().size());
  options.in_background = !engine_.rests_on_disk();
  options.writes_whole_tensors = engine_.mesh().tensor().rank() == 0;
  absl::Status status = snapshot_writer_.Start(options, engine_.checkpointed_models());
  return status.ok() ? Done(options.name) : Refused(std::move(status));
}

RankResult RankWorker::TellSnapshotState(bool wait) {
  SnapshotState state;
  if (snapshot_writer_.started()) {
    if (wait || snapshot_writer_.done()) {
      const absl::StatusOr<double> seconds = snapshot_writer_.Wait();
      state.status = seconds.status();
      state.seconds = seconds.ok() ? *seconds : 0;
    } else {
      state.running = true;
    }
  }
  return Done(state.Encode());
}

RankResult RankWorker::VerifyShard(const std::string& folder) {
  const auto verify = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto reader, checkpoint::CheckpointReader::Open(folder));
    return VerifyShards(reader, engine_.checkpointed_models());
  };
  absl::Status status = verify();
  return status.ok() ? Done() : Refused(std::move(status));
}

RankResult RankWorker::ReadShard(const std::string& folder) {
  const auto read = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto reader, checkpoint::CheckpointReader::Open(folder));
    RETURN_IF_ERROR(ReadShards(reader, engine_.checkpointed_models()));
    return engine_.SetAlgorithmScalars(reader.manifest().scalars);
  };
  absl::Status status = read();
  return status.ok() ? Done() : Fatal(std::move(status));
}

RankResult RankWorker::Reset() {
  absl::Status status = engine_.ResetToInitialState();
  return status.ok() ? Done() : Fatal(std::move(status));
}

RankResult RankWorker::Reach(const std::string& payload) {
  diagnostics::v1::CheckReachRequest request;
  if (!request.ParseFromString(payload)) return Refused(absl::InternalError("garbled command"));
  const auto response =
      probe::ReachFromHere(request, engine_.mesh().rank(), engine_.policy().device().is_cuda());
  return Done(response.processes(0).SerializeAsString());
}

RankResult RankWorker::Probe(const std::string& payload) {
  diagnostics::v1::ProbeGroupRequest request;
  if (!request.ParseFromString(payload)) return Refused(absl::InternalError("garbled command"));
  const absl::Time deadline = absl::Now() + rpc::FromProto(request.timeout());
  const int rank = request.first_rank() + engine_.mesh().rank();
  return Done(probe::ProbeAsRank(request, rank, deadline, nullptr).SerializeAsString());
}

}  // namespace tandem::trainer
