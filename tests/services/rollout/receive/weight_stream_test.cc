// A replica that reads the weights of another over gRPC.
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/hash/hasher.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/tensor_digests.h"
#include "tests/fakes/fake_rollout.h"
#include "tests/fakes/faulty_link.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::CuttingProxy;
using ::tandem::testing::FakeRollout;
using ::tandem::testing::Relay;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBucketBytes = 64 << 10;

// Larger than what the buffers on the way hold.
TestModel Large() { return {{{{1024, 1024}}, {{512, 1024}, {512, 1024}}}}; }

// Makes the model live as `version`, as an update would. On the receiver's thread.
absl::Status Install(WeightStore& store, const TestModel& model, int64_t version) {
  RETURN_IF_ERROR(store.PrepareStaging());
  std::vector<weights::TensorDigest> digests;
  for (int i = 0; i < store.manifest().tensors_size(); ++i) {
    const std::string bytes = model.Bytes(i);
    std::memcpy(store.Staged(i).data(), bytes.data(), bytes.size());
    const auto& tensor = store.manifest().tensors(i);
    digests.push_back(
        weights::MakeTensorDigest(tensor, weights::SumOfHeld(tensor, store.Staged(i))));
  }
  return store.Commit(version, /*incarnation=*/0, weights::ModelDigest(digests)).status();
}

void MakeLive(FakeRollout& rollout, const TestModel& model, int64_t version) {
  ASSERT_OK(rollout.receiver.RunExclusive(
      [&](WeightStore& store) { return Install(store, model, version); }));
}

void ExpectLive(const FakeRollout& rollout, const TestModel& model, int64_t version) {
  EXPECT_EQ(rollout.store.live_version(), version);
  for (int i = 0; i < rollout.store.manifest().tensors_size(); ++i)
    EXPECT_TRUE(rollout.store.LiveBytes(i) == model.Bytes(i)) << i;
}

v1::BeginUpdateRequest BeginRequest(const TestModel& model, const std::string& source,
                                    absl::Duration timeout = absl::Seconds(60)) {
  const auto plan = *weights::MakeTransferPlan(model.manifest(), 1 << 20);
  v1::BeginUpdateRequest request;
  request.set_incarnation(1);
  request.set_update_id("u");
  request.set_policy_version(1);
  *request.mutable_manifest() = plan.manifest;
  request.set_manifest_digest(plan.manifest.digest());
  request.mutable_buckets()->Assign(plan.buckets.begin(), plan.buckets.end());
  request.mutable_timeout()->set_seconds(absl::ToInt64Seconds(timeout));
  request.set_transport(common::v1::TRANSPORT_STREAM);
  request.set_stream_address(source);
  return request;
}

// A replica that reads, and the calls that a trainer makes of it.
class Reader {
 public:
  explicit Reader(const TestModel& model,
                  StreamReader::Options options = {.bucket_bytes = kBucketBytes,
                                                   .patience = absl::Seconds(10)})
      : rollout(model, "127.0.0.1:0", options),
        stub_(v1::WeightService::NewStub(rpc::MakeChannel(rollout.address()))) {}

  absl::Status Begin(const v1::BeginUpdateRequest& request) {
    v1::BeginUpdateResponse response;
    return Call(&v1::WeightService::Stub::BeginUpdate, request, response);
  }
  absl::StatusOr<v1::VerifyUpdateResponse> Verify() {
    v1::VerifyUpdateResponse response;
    RETURN_IF_ERROR(
        Call(&v1::WeightService::Stub::VerifyUpdate, Named<v1::VerifyUpdateRequest>(), response));
    return response;
  }
  absl::Status Commit(const std::string& digest) {
    auto request = Named<v1::CommitUpdateRequest>();
    request.set_policy_version(1);
    request.set_model_digest(digest);
    v1::CommitUpdateResponse response;
    return Call(&v1::WeightService::Stub::CommitUpdate, request, response);
  }
  absl::Status Abort() {
    v1::AbortUpdateResponse response;
    return Call(&v1::WeightService::Stub::AbortUpdate, Named<v1::AbortUpdateRequest>(), response);
  }
  absl::Status ReadAll(const TestModel& model, const std::string& source) {
    RETURN_IF_ERROR(Begin(BeginRequest(model, source)));
    ASSIGN_OR_RETURN(const v1::VerifyUpdateResponse verified, Verify());
    return Commit(verified.model_digest());
  }

  FakeRollout rollout;

 private:
  template <typename Request>
  static Request Named() {
    Request request;
    request.set_incarnation(1);
    request.set_update_id("u");
    return request;
  }
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, Request request, Response& response) {
    rpc::SetDigest(request);
    return rpc::FromGrpcStatus(
        (stub_.get()->*method)(rpc::MakeContext(absl::Seconds(60)).get(), request, &response));
  }

  std::unique_ptr<v1::WeightService::Stub> stub_;
};

TEST(WeightStream, AReplicaReadsWhatAnotherHasWithoutAGroup) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    const TestModel model = TestModel::Small(dtype);
    FakeRollout source(model);
    MakeLive(source, model, 1);
    Reader reader(model, {.bucket_bytes = 24, .patience = absl::Seconds(10)});
    ASSERT_OK(reader.ReadAll(model, source.address()));
    ExpectLive(reader.rollout, model, 1);
    EXPECT_EQ(reader.rollout.store.live_model_digest(), source.store.live_model_digest());
    EXPECT_EQ(source.reads().size(), 1);
  }
}

TEST(WeightStream, OneBucketOfAnOddSizeIsReadToo) {
  TestModel model{{{{3, 1}, {2}}}, "bfloat16"};
  FakeRollout source(model);
  MakeLive(source, model, 1);
  Reader reader(model);
  ASSERT_OK(reader.ReadAll(model, source.address()));
  ExpectLive(reader.rollout, model, 1);
}

TEST(WeightStream, SeveralReadFromOneAtATime) {
  const TestModel model = Large();
  FakeRollout source(model);
  MakeLive(source, model, 1);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 3; ++i) readers.push_back(std::make_unique<Reader>(model));
  for (auto& reader : readers) ASSERT_OK(reader->Begin(BeginRequest(model, source.address())));
  for (auto& reader : readers) {
    ASSERT_OK_AND_ASSIGN(const auto verified, reader->Verify());
    ASSERT_OK(reader->Commit(verified.model_digest()));
    ExpectLive(reader->rollout, model, 1);
  }
}

TEST(WeightStream, ABrokenConnectionIsTakenUpAtTheFirstBucketThatIsNotVerified) {
  const TestModel model = Large();
  FakeRollout source(model);
  MakeLive(source, model, 1);
  CuttingProxy proxy(source.address(), 3 << 20, 2);
  Reader reader(model);
  ASSERT_OK(reader.ReadAll(model, proxy.address()));
  ExpectLive(reader.rollout, model, 1);
  EXPECT_EQ(proxy.connections(), 3);
  const auto reads = source.reads();
  ASSERT_EQ(reads.size(), 3);
  EXPECT_EQ(reads[0].first_bucket(), 0);
  for (int i = 1; i < 3; ++i) {  // what was still on its way of 48 buckets is lost
    EXPECT_GT(reads[i].first_bucket(), reads[i - 1].first_bucket());
    EXPECT_LE(reads[i].first_bucket(), reads[i - 1].first_bucket() + 48);
  }
}

TEST(WeightStream, ABucketThatArrivesDamagedIsReadAgain) {
  const TestModel model = Large();
  FakeRollout source(model);
  MakeLive(source, model, 1);
  int seen = 0;
  Relay relay(source.address(), [&](v1::ReadWeightsResponse& message) {
    if (message.bucket() == 5 && ++seen <= 2) (*message.mutable_data())[77] ^= 1;
  });
  Reader reader(model);
  ASSERT_OK(reader.ReadAll(model, relay.address()));
  ExpectLive(reader.rollout, model, 1);
  EXPECT_THAT(relay.first_buckets(), ElementsAre(0, 5, 5));
}

TEST(WeightStream, ABucketThatIsAlwaysDamagedEndsTheUpdate) {
  const TestModel model = TestModel::Small();
  FakeRollout source(model);
  MakeLive(source, model, 1);
  Relay relay(source.address(), [](v1::ReadWeightsResponse& message) {
    if (message.bucket() == 3) message.mutable_data()->front() ^= 1;
  });
  Reader reader(model, {.bucket_bytes = 64, .patience = absl::Seconds(10)});
  EXPECT_THAT(reader.ReadAll(model, relay.address()),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr(relay.address()), HasSubstr("bucket 3 of"),
                             HasSubstr("arrived with digest"), HasSubstr("5 times"))));
  EXPECT_EQ(reader.rollout.store.live_version(), -1);
}

TEST(WeightStream, MessagesThatAreNoPartOfTheBucketAreNotTaken) {
  const TestModel model = TestModel::Small();
  FakeRollout source(model);
  MakeLive(source, model, 1);
  const Relay* connections = nullptr;
  Relay relay(source.address(), [&](v1::ReadWeightsResponse& message) {
    if (message.bucket() != 0) return;
    switch (connections->first_buckets().size()) {
      case 1:
        message.set_bucket(7);
        break;
      case 2:
        message.mutable_data()->append(100, 'x');
        break;
      case 3:
        message.clear_data();
        break;
      case 4:
        message.clear_bucket_digest();
        break;
      default:
        break;
    }
  });
  connections = &relay;
  Reader reader(model, {.bucket_bytes = 64, .patience = absl::Seconds(10)});
  ASSERT_OK(reader.ReadAll(model, relay.address()));
  ExpectLive(reader.rollout, model, 1);
  EXPECT_THAT(relay.first_buckets(), ElementsAre(0, 0, 0, 0, 0));
}

TEST(WeightStream, AVersionThatGoesWhileItIsReadEndsTheUpdate) {
  const TestModel model = TestModel::Small();
  TestModel next = model;
  next.offset = 3;
  FakeRollout source(model);
  MakeLive(source, model, 1);
  int copies = 0;
  source.store.on_live = [&](int) {
    if (++copies != 5) return;
    // It runs before the next copy can be asked for.
    source.receiver.RunSoon([&](WeightStore& store) { EXPECT_OK(Install(store, next, 2)); });
  };
  Reader reader(model, {.bucket_bytes = 64, .patience = absl::Seconds(10)});
  EXPECT_THAT(reader.ReadAll(model, source.address()),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("policy_version: 1 was replaced while it was read, 2 is live")));
  EXPECT_EQ(reader.rollout.store.live_version(), -1);
  EXPECT_EQ(source.reads().size(), 1);
}

TEST(WeightStream, AnAbortEndsAReadThatWaits) {
  const TestModel model = TestModel::Small();
  FakeRollout source(model);
  MakeLive(source, model, 1);
  absl::Notification reached, release;
  Relay relay(source.address(), [&](v1::ReadWeightsResponse& message) {
    if (message.bucket() != 3 || reached.HasBeenNotified()) return;
    reached.Notify();
    release.WaitForNotification();
  });
  Reader reader(model, {.bucket_bytes = 64, .patience = absl::Hours(1)});
  ASSERT_OK(reader.Begin(BeginRequest(model, relay.address())));
  reached.WaitForNotification();
  EXPECT_OK(reader.Abort());
  EXPECT_THAT(reader.Verify(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("aborted")));
  // The receiver's thread is free again.
  EXPECT_OK(reader.rollout.receiver.RunExclusive([](WeightStore&) { return absl::OkStatus(); }));
  EXPECT_GE(reader.rollout.store.num_dropped, 1);
  release.Notify();
}

TEST(WeightStream, ASourceThatFallsSilentIsGivenUp) {
  const TestModel model = TestModel::Small();
  FakeRollout source(model);
  MakeLive(source, model, 1);
  absl::Notification release;
  Relay relay(source.address(), [&](v1::ReadWeightsResponse& message) {
    if (message.bucket() == 3) release.WaitForNotification();
  });
  Reader reader(model, {.bucket_bytes = 64, .patience = absl::Milliseconds(200)});
  EXPECT_THAT(reader.ReadAll(model, relay.address()),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("bucket 3 of"), HasSubstr("nothing arrived for 200ms"))));
  release.Notify();
}

TEST(WeightStream, ASourceThatIsNotThereIsGivenUp) {
  const TestModel model = TestModel::Small();
  Reader reader(model, {.bucket_bytes = 64, .patience = absl::Milliseconds(200)});
  EXPECT_THAT(reader.ReadAll(model, "127.0.0.1:1"),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("stream from 127.0.0.1:1"), HasSubstr("bucket 0 of"))));
}

TEST(WeightStream, TheDeadlineEndsTheReading) {
  const TestModel model = TestModel::Small();
  Reader reader(model, {.bucket_bytes = 64, .patience = absl::Hours(1)});
  ASSERT_OK(reader.Begin(BeginRequest(model, "127.0.0.1:1", absl::Seconds(1))));
  EXPECT_THAT(reader.Verify(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("not read by the deadline")));
}

TEST(WeightStream, BeginRequestsThatMakeNoSenseNameTheField) {
  const TestModel model = TestModel::Small();
  Reader reader(model);
  const auto expect = [&](const std::string& field,
                          const std::function<void(v1::BeginUpdateRequest&)>& change) {
    auto request = BeginRequest(model, "127.0.0.1:5000");
    change(request);
    EXPECT_THAT(reader.Begin(request),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
  };
  for (const char* address : {"", "host", "host:", ":5000", "host:0", "host:70000", "unix:/x:1"}) {
    expect("stream_address", [&](auto& request) { request.set_stream_address(address); });
  }
  expect("rendezvous", [](auto& request) { request.mutable_rendezvous()->set_size(2); });
  expect("rendezvous", [](auto& request) { request.mutable_forward()->set_size(2); });
  expect("base_version", [](auto& request) { request.set_base_version(0); });
  expect("transport", [](auto& request) { request.clear_transport(); });
}

// What ReadWeights itself answers.
class ReadWeightsTest : public ::testing::Test {
 protected:
  v1::ReadWeightsRequest Request() const {
    v1::ReadWeightsRequest request;
    request.set_policy_version(1);
    request.set_manifest_digest(model_.manifest().digest());
    request.set_bucket_bytes(64);
    return request;
  }
  absl::StatusOr<std::vector<v1::ReadWeightsResponse>> Read(v1::ReadWeightsRequest request) {
    rpc::SetDigest(request);
    const auto context = rpc::MakeContext(absl::Seconds(30));
    const auto reader = stub_->ReadWeights(context.get(), request);
    std::vector<v1::ReadWeightsResponse> messages;
    for (v1::ReadWeightsResponse message; reader->Read(&message);) messages.push_back(message);
    RETURN_IF_ERROR(rpc::FromGrpcStatus(reader->Finish()));
    return messages;
  }

  const TestModel model_ = TestModel::Small();
  FakeRollout source_{model_};
  std::unique_ptr<v1::WeightService::Stub> stub_ =
      v1::WeightService::NewStub(rpc::MakeChannel(source_.address()));
};

TEST_F(ReadWeightsTest, TheStreamIsTheManifestsCanonicalOneFromAnyBucket) {
  MakeLive(source_, model_, 1);
  std::string all;
  for (int i = 0; i < model_.manifest().tensors_size(); ++i) all += model_.Bytes(i);
  const auto plan = *weights::MakeTransferPlan(model_.manifest(), 64);
  for (const int first : {0, 7, static_cast<int>(plan.buckets.size()) - 1}) {
    auto request = Request();
    request.set_first_bucket(first);
    ASSERT_OK_AND_ASSIGN(const auto messages, Read(request));
    ASSERT_EQ(messages.size(), plan.buckets.size() - first);
    for (size_t i = 0; i < messages.size(); ++i) {
      const int bucket = first + static_cast<int>(i);
      EXPECT_EQ(messages[i].bucket(), bucket);
      EXPECT_EQ(messages[i].data(), all.substr(64 * bucket, 64));
      EXPECT_EQ(messages[i].bucket_digest(),
                hash::HexDigest(absl::MakeConstSpan(
                    reinterpret_cast<const std::byte*>(messages[i].data().data()),
                    messages[i].data().size())));
    }
  }
}

TEST_F(ReadWeightsTest, TensorsThatTheReaderKeepsAreNoPartOfTheStream) {
  MakeLive(source_, model_, 1);
  for (const auto& kept : std::vector<std::vector<int>>{{0}, {1, 3}, {5}, {0, 1, 2, 3, 4}}) {
    auto request = Request();
    request.mutable_kept_tensors()->Assign(kept.begin(), kept.end());
    std::string expected, found;
    for (int i = 0; i < model_.manifest().tensors_size(); ++i) {
      if (std::find(kept.begin(), kept.end(), i) == kept.end()) expected += model_.Bytes(i);
    }
    ASSERT_OK_AND_ASSIGN(const auto messages, Read(request));
    for (const auto& message : messages) found += message.data();
    EXPECT_EQ(found, expected);
  }
}

TEST_F(ReadWeightsTest, RequestsThatMakeNoSenseAreAnsweredSo) {
  const auto expect = [&](absl::StatusCode code, const std::string& what,
                          const std::function<void(v1::ReadWeightsRequest&)>& change) {
    auto request = Request();
    change(request);
    EXPECT_THAT(Read(request), StatusIs(code, HasSubstr(what)));
  };
  expect(absl::StatusCode::kFailedPrecondition, "-1 is live", [](auto&) {});
  expect(absl::StatusCode::kFailedPrecondition, "-1 is live",
         [](auto& request) { request.set_policy_version(-1); });
  MakeLive(source_, model_, 1);
  expect(absl::StatusCode::kFailedPrecondition, "policy_version: 1 is live, found 2",
         [](auto& request) { request.set_policy_version(2); });
  expect(absl::StatusCode::kFailedPrecondition, "manifest_digest",
         [](auto& request) { request.set_manifest_digest("x"); });
  for (const int64_t bytes :
       {int64_t{0}, int64_t{-8}, int64_t{12}, weights::kMaxBucketBytes + 8, INT64_MIN, INT64_MAX}) {
    expect(absl::StatusCode::kInvalidArgument, "bucket_bytes",
           [&](auto& request) { request.set_bucket_bytes(bytes); });
  }
  for (const auto& kept :
       std::vector<std::vector<int>>{{-1}, {6}, {1, 0}, {2, 2}, {0, 1, 2, 3, 4, 5}, {INT32_MAX}}) {
    expect(absl::StatusCode::kInvalidArgument, "kept_tensors", [&](auto& request) {
      request.mutable_kept_tensors()->Assign(kept.begin(), kept.end());
    });
  }
  for (const int bucket : {-1, 18, INT32_MIN, INT32_MAX}) {
    expect(absl::StatusCode::kOutOfRange, "expected 0 to 17",
           [&](auto& request) { request.set_first_bucket(bucket); });
  }
}

TEST_F(ReadWeightsTest, AfterShutdownReadersAreSentAway) {
  MakeLive(source_, model_, 1);
  source_.receiver.Shutdown();
  EXPECT_THAT(Read(Request()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
}

TEST(ReadWeights, ASlowReaderHoldsTheServerBack) {
  const TestModel model{{{{16, 1024, 1024}}}};  // 64 messages
  FakeRollout source(model);
  std::atomic<int> copied{0};
  source.store.on_live = [&](int) { ++copied; };
  ASSERT_OK(source.receiver.RunExclusive([](WeightStore& store) -> absl::Status {
    RETURN_IF_ERROR(store.PrepareStaging());
    return store.Commit(1, /*incarnation=*/0, "d").status();
  }));
  const auto stub = v1::WeightService::NewStub(rpc::MakeChannel(source.address()));
  // gRPC's own window would grow with what it takes to be the link's delay.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto slow = v1::WeightService::NewStub(
      grpc::CreateCustomChannel(source.address(), grpc::InsecureChannelCredentials(), arguments));
  v1::ReadWeightsRequest request;
  request.set_policy_version(1);
  request.set_manifest_digest(model.manifest().digest());
  request.set_bucket_bytes(int64_t{32} << 20);
  rpc::SetDigest(request);
  const auto context = rpc::MakeContext(absl::Seconds(60));
  const auto reader = slow->ReadWeights(context.get(), request);

  v1::ReadWeightsResponse message;
  int read = 0;
  for (; read < 3; ++read) ASSERT_TRUE(reader->Read(&message));
  // Time in which a server that did not wait would copy all of it: each of these has to wait for
  // the thread that copies.
  for (int i = 0; i < 200; ++i) {
    v1::GetManifestResponse manifest;
    ASSERT_TRUE(stub->GetManifest(rpc::MakeContext(absl::Seconds(30)).get(), {}, &manifest).ok());
    ASSERT_OK(source.receiver.RunExclusive([](WeightStore&) { return absl::OkStatus(); }));
  }
  EXPECT_LE(copied, read + 4);
  EXPECT_EQ(message.data().size(), 1 << 20);
  EXPECT_EQ(message.bucket_digest(), "");

  while (reader->Read(&message)) ++read;
  EXPECT_OK(rpc::FromGrpcStatus(reader->Finish()));
  EXPECT_EQ(read, 64);
  EXPECT_EQ(message.bucket(), 1);
  EXPECT_NE(message.bucket_digest(), "");
}

}  // namespace
}  // namespace tandem::rollout
