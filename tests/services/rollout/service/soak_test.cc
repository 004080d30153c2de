// Random requests for a long time: aborts, cancels, disconnects, slow readers, oversize and
// malformed requests, weight updates and sleep in the middle. Nothing stalls beyond its deadline,
// nothing leaks, and every token is what a quiet engine samples.
//
// TANDEM_SOAK_SECONDS says how long; 600 where it is not set.
#include <dirent.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host/process_memory.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "services/rollout/requests/convert.h"
#include "services/rollout/service/rollout_service.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/staged_weights.h"

namespace tandem::rollout {
namespace {

// A call that takes longer has stalled.
constexpr absl::Duration kStall = absl::Seconds(120);
constexpr int kClients = 12;

absl::Duration SoakTime() {
  const char* seconds = std::getenv("TANDEM_SOAK_SECONDS");
  return absl::Seconds(seconds == nullptr ? 600 : std::atoi(seconds));
}

int64_t ResidentBytes() {
  malloc_trim(0);
  return host::ResidentBytes();
}

int NumDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Version v has the weights of this seed.
uint64_t SeedOf(int64_t version) { return 100 + version % 2; }

EngineOptions Options() {
  EngineOptions options;
  options.kv_cache_bytes = 600 << 10;  // some fifty blocks: preemptions are common
  options.scheduler.max_num_seqs = 24;
  options.scheduler.max_num_batched_tokens = 128;
  options.max_model_len = 256;
  options.max_num_requests = 64;
  return options;
}

// Engines that do one thing at a time, each of one set of weights.
class QuietEngines {
 public:
  explicit QuietEngines(const model::Transformer& model) {
    for (int64_t version = 0; version < 2; ++version) {
      auto engine = Engine::Create(Options(), model, nullptr);
      auto arena = (*engine)->weights().Staged();
      tandem::testing::StageRandom(model.spec(), SeedOf(version), **arena);
      EXPECT_OK((*engine)->Commit(version, absl::Now() + kPatience).status());
      engines_.push_back(*std::move(engine));
    }
  }

  // Tokens [begin, end) of a sample of which `tokens` are known, under a version.
  std::vector<int32_t> Continue(const v1::GenerateRequest& request, int32_t index,
                                const std::vector<int32_t>& tokens, int64_t begin, int64_t end,
                                int64_t version) {
    absl::StatusOr<GenerationRequest> spec = FromProto(request, nullptr);
    EXPECT_OK(spec.status());
    spec->max_tokens = end;
    spec->stream = false;
    spec->begun.clear();
    for (int32_t i = 0; i < spec->n; ++i) {
      spec->begun.push_back({.index = i, .ended = i != index});
    }
    spec->begun[index].token_ids.assign(tokens.begin(), tokens.begin() + begin);
    Outcome outcome;
    absl::MutexLock lock(&mu_);
    EXPECT_OK(engines_[version % 2]->Submit(*spec, outcome.callbacks()).status());
    EXPECT_TRUE(outcome.Wait());
    EXPECT_OK(outcome.status());
    return outcome.sample(index).token_ids;
  }

 private:
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

class Soak {
 public:
  Soak() : model_(SmallSpec()), quiet_(model_) {
    auto engine = Engine::Create(Options(), model_, nullptr);
    EXPECT_OK(engine.status());
    engine_ = *std::move(engine);
    service_ = std::make_unique<RolloutServiceImpl>(
        *engine_, nullptr, RolloutServiceImpl::Hooks{.updating_to = [] { return -1; }});
    auto server = rpc::Server::Start({.role = "rollout"}, {service_.get()});
    EXPECT_OK(server.status());
    server_ = *std::move(server);
    Update(0);
  }
  ~Soak() { server_->Drain(absl::Seconds(5)); }

  void RunFor(absl::Duration duration) {
    const absl::Time end = absl::Now() + duration;
    std::vector<std::thread> threads;
    for (int i = 0; i < kClients; ++i) threads.emplace_back([this, i, end] { Client(i, end); });
    threads.emplace_back([this, end] { Updates(end); });
    for (std::thread& thread : threads) thread.join();
  }

  // When nobody asks for anything any more.
  void ExpectNothingLeft() {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    EngineInfo info = engine_->Info();
    while (absl::Now() < deadline && (info.num_free_kv_blocks != info.num_kv_blocks ||
                                      info.num_queued_tokens != 0 || info.num_waiting_requests)) {
      absl::SleepFor(absl::Milliseconds(10));
      info = engine_->Info();
    }
    EXPECT_EQ(info.num_free_kv_blocks, info.num_kv_blocks);
    EXPECT_EQ(info.num_queued_tokens, 0);
    EXPECT_EQ(info.num_running_requests + info.num_waiting_requests, 0);
  }

  std::string Summary() const {
    const EngineInfo info = engine_->Info();
    return absl::StrCat(answers_.load(), " answers of ", tokens_.load(), " tokens checked, ",
                        spans_.load(), " spans, ", broken_off_.load(), " broken off, ",
                        refused_.load(), " refused, ", full_.load(), " queue full, version ",
                        info.policy_version, ", ", info.scheduler.num_preemptions, " preemptions, ",
                        info.scheduler.num_cached_tokens, " cached tokens");
  }
  int64_t answers() const { return answers_.load(); }

 private:
  enum class Manner { kReads, kSlow, kCancels, kAborts, kDisconnects, kNonsense };

  void Update(int64_t version) {
    auto arena = engine_->weights().Staged();
    ASSERT_OK(arena.status());
    tandem::testing::StageRandom(model_.spec(), SeedOf(version), **arena);
    ASSERT_OK(engine_->Commit(version, absl::Now() + kStall).status());
  }

  void Updates(absl::Time end) {
    auto stub = v1::RolloutService::NewStub(rpc::MakeChannel(server_->address()));
    std::mt19937 random(7);
    for (int64_t version = 1; absl::Now() < end; ++version) {
      absl::SleepFor(absl::Milliseconds(100 + random() % 900));
      const bool sleeps = version % 5 == 0;
      if (sleeps) {
        v1::PauseRequest pause;
        pause.add_release(v1::RELEASED_MEMORY_KV);
        v1::PauseResponse response;
        const auto context = rpc::MakeContext(kStall);
        EXPECT_OK(rpc::FromGrpcStatus(stub->Pause(context.get(), pause, &response)));
      }
      Update(version);
      if (!sleeps) continue;
      v1::ResumeResponse response;
      const auto context = rpc::MakeContext(kStall);
      EXPECT_OK(rpc::FromGrpcStatus(stub->Resume(context.get(), {}, &response)));
    }
  }

  static v1::GenerateRequest Draw(std::mt19937& random) {
    v1::GenerateRequest request;
    const int length = random() % 8 == 0 ? 1 + random() % 150 : 1 + random() % 30;
    const uint32_t base = random() % 4;  // some share prefixes
    for (int i = 0; i < length; ++i) {
      request.mutable_token_ids()->add_ids((base * 31 + i * 7 + (i > 16 ? random() : 0)) % 97);
    }
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_max_tokens(1 + random() % 50);
    sampling.set_n(random() % 12 == 0 ? 1 + random() % 40 : 1 + random() % 3);
    sampling.set_seed(random());
    sampling.set_temperature(random() % 3 == 0 ? 0.0 : 1.0);
    if (random() % 2 == 0) sampling.set_top_k(1 + random() % 50);
    if (random() % 3 == 0) sampling.set_top_p(0.5 + (random() % 50) / 100.0);
    if (random() % 3 == 0) sampling.add_stop_token_ids(random() % 97);
    request.set_stream(random() % 2 == 0);
    request.set_priority(static_cast<int32_t>(random() % 3) - 1);
    request.set_client_id(absl::StrCat("client ", random() % 4));
    return request;
  }

  // What is wrong with it, and in how many ways, is drawn.
  static void Spoil(v1::GenerateRequest& request, std::mt19937& random) {
    switch (random() % 7) {
      case 0:
        request.mutable_token_ids()->add_ids(97 + random());
        break;
      case 1:
        for (int i = 0; i < 5000; ++i) request.mutable_token_ids()->add_ids(3);
        break;
      case 2:
        request.mutable_sampling()->set_temperature(-1);
        break;
      case 3:
        request.mutable_sampling()->set_n(-4);
        break;
      case 4:
        request.clear_token_ids();
        break;
      case 5:
        request.set_text("there is no tokenizer");
        break;
      default:
        request.mutable_sampling()->set_min_tokens(1000);
    }
  }

  static Manner DrawManner(std::mt19937& random) {
    const uint32_t draw = random() % 100;
    return draw < 60   ? Manner::kReads
           : draw < 67 ? Manner::kSlow
           : draw < 77 ? Manner::kCancels
           : draw < 84 ? Manner::kAborts
           : draw < 90 ? Manner::kDisconnects
                       : Manner::kNonsense;
  }

  void Client(int number, absl::Time end) {
    std::mt19937 random(1000 + number);
    auto channel = rpc::MakeChannel(server_->address(), {.retry = false});
    while (absl::Now() < end && !::testing::Test::HasFailure()) {
      const Manner manner = DrawManner(random);
      v1::GenerateRequest request = Draw(random);
      request.set_request_id(absl::StrCat("r", number, "-", random()));
      if (manner == Manner::kNonsense) Spoil(request, random);
      if (manner == Manner::kDisconnects) {
        grpc::ChannelArguments own;  // a connection of its own, which ends with the channel
        own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        Call(grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), own),
             manner, request, random);
      } else {
        Call(channel, manner, request, random);
      }
    }
  }

  void Call(const std::shared_ptr<grpc::Channel>& channel, Manner manner,
            const v1::GenerateRequest& request, std::mt19937& random) {
    auto stub = v1::RolloutService::NewStub(channel);
    const auto context = rpc::MakeContext(kStall);
    const auto reader = stub->Generate(context.get(), request);
    std::map<int32_t, std::vector<v1::GenerateResponse>> samples;
    v1::GenerateResponse response;
    int reads = 0;
    const int break_off = static_cast<int>(random() % 6);
    while (reader->Read(&response)) {
      samples[response.index()].push_back(response);
      if (manner == Manner::kSlow) absl::SleepFor(absl::Milliseconds(random() % 40));
      if (++reads <= break_off) continue;
      if (manner == Manner::kCancels || manner == Manner::kDisconnects) context->TryCancel();
      if (manner == Manner::kAborts && reads == break_off + 1) {
        v1::AbortRequest abort;
        abort.add_request_ids(request.request_id());
        v1::AbortResponse aborted;
        const auto abort_context = rpc::MakeContext(kStall);
        EXPECT_OK(rpc::FromGrpcStatus(stub->Abort(abort_context.get(), abort, &aborted)));
      }
    }
    const absl::Status status = rpc::FromGrpcStatus(reader->Finish());
    EXPECT_FALSE(absl::IsDeadlineExceeded(status)) << "a call has stalled: " << status;
    if (absl::IsResourceExhausted(status)) {
      ++full_;
      absl::SleepFor(absl::Milliseconds(20));
      return;
    }
    if (manner == Manner::kNonsense) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      ++refused_;
      return;
    }
    if (absl::IsCancelled(status)) {
      EXPECT_TRUE(manner == Manner::kCancels || manner == Manner::kDisconnects) << status;
      ++broken_off_;
    } else {
      EXPECT_OK(status);
      EXPECT_EQ(static_cast<int32_t>(samples.size()), request.sampling().n());
    }
    for (const auto& [index, messages] : samples) Check(request, index, messages);
  }

  // Every span of the answer is what a quiet engine of its version goes on with.
  void Check(const v1::GenerateRequest& request, int32_t index,
             const std::vector<v1::GenerateResponse>& messages) {
    std::vector<int32_t> tokens;
    struct Span {
      int64_t version, begin, end;
    };
    std::vector<Span> spans;
    for (const v1::GenerateResponse& message : messages) {
      const auto offset = static_cast<int64_t>(tokens.size());
      tokens.insert(tokens.end(), message.token_ids().begin(), message.token_ids().end());
      for (const auto& span : message.version_spans()) {
        const Span found{span.policy_version(), span.begin() + offset, span.end() + offset};
        if (!spans.empty() && spans.back().version == found.version) {
          spans.back().end = found.end;
        } else {
          spans.push_back(found);
        }
      }
    }
    if (tokens.empty()) return;
    ++answers_;
    tokens_ += static_cast<int64_t>(tokens.size());
    for (const Span& span : spans) {
      ++spans_;
      const std::vector<int32_t> expected =
          quiet_.Continue(request, index, tokens, span.begin, span.end, span.version);
      const std::vector<int32_t> found(tokens.begin() + span.begin, tokens.begin() + span.end);
      EXPECT_EQ(found, expected) << "sample " << index << ", version " << span.version
                                 << ", tokens " << span.begin << " to " << span.end << " of\n"
                                 << request.ShortDebugString();
    }
  }

  model::Transformer model_;
  QuietEngines quiet_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RolloutServiceImpl> service_;
  std::unique_ptr<rpc::Server> server_;
  std::atomic<int64_t> answers_{0}, tokens_{0}, spans_{0}, broken_off_{0}, refused_{0}, full_{0};
};

TEST(SoakTest, NothingLeaksNothingStallsAndEveryTokenIsRight) {
  Soak soak;
  // What is taken once is taken in the first part.
  soak.RunFor(SoakTime() / 4);
  soak.ExpectNothingLeft();
  const int64_t memory = ResidentBytes();
  const int descriptors = NumDescriptors();
  std::printf("%s\n%lld bytes, %d descriptors\n", soak.Summary().c_str(),
              static_cast<long long>(memory), descriptors);

  soak.RunFor(SoakTime() * 3 / 4);

  soak.ExpectNothingLeft();
  const int64_t memory_after = ResidentBytes();
  const int descriptors_after = NumDescriptors();
  std::printf("%s\n%lld bytes, %d descriptors\n", soak.Summary().c_str(),
              static_cast<long long>(memory_after), descriptors_after);
  EXPECT_GT(soak.answers(), 0);
  EXPECT_LT(memory_after, memory + memory / 5 + (16 << 20));
  EXPECT_LE(descriptors_after, descriptors + kClients);
}

}  // namespace
}  // namespace tandem::rollout
