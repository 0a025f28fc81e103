// SPDX-License-Identifier: MIT
// The variables that some version of NCCL from 2.18 to 2.30 reads, as found in its sources.
#include "comm/nccl/nccl_variables.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace ddprun {
namespace {

// Without their prefix, sorted.
constexpr std::string_view kIntegers[] = {"AGG_CHANNEL_SIZE",
                                          "ALLGATHERV_ENABLE",
                                          "ALLOC_P2P_NET_LL_BUFFERS",
                                          "BUFFSIZE",
                                          "CGA_CLUSTER_SIZE",
                                          "CHECK_POINTERS",
                                          "CHUNK_SIZE",
                                          "COLLNET_ENABLE",
                                          "COLLNET_NODE_THRESHOLD",
                                          "COMM_BLOCKING",
                                          "COMM_SHRINK_SHARE_RESOURCES",
                                          "COMM_SPLIT_SHARE_RESOURCES",
                                          "CONNECT_ROUND_MAX_PEERS",
                                          "CREATE_THREAD_CONTEXT",
                                          "CROSS_NIC",
                                          "CTA_POLICY",
                                          "CUMEM_ENABLE",
                                          "CUMEM_HOST_ENABLE",
                                          "DEV_API_JIT",
                                          "DISABLE_MEM_MANAGER",
                                          "DMABUF_ENABLE",
                                          "ELASTIC_BUFFER_REGISTER",
                                          "ENABLE_VERSION_CHECK",
                                          "GDAKI_USE_RELIABLE_DB",
                                          "GDRCOPY_ENABLE",
                                          "GDRCOPY_FIFO_ENABLE",
                                          "GDRCOPY_FLUSH_ENABLE",
                                          "GDRCOPY_SYNC_ENABLE",
                                          "GDR_FLUSH_DISABLE",
                                          "GIN_COUNTER_POOL_SIZE",
                                          "GIN_ENABLE",
                                          "GIN_ERROR_QUERY_SEC",
                                          "GIN_EXCLUSIVE_CONTEXTS",
                                          "GIN_GDAKI_MAX_DEST_RD_ATOMIC",
                                          "GIN_GDAKI_MAX_QP_RD_ATOMIC",
                                          "GIN_GDAKI_NIC_HANDLER",
                                          "GIN_GDAKI_QP_DEPTH",
                                          "GIN_IB_TC",
                                          "GIN_NCONNECTIONS",
                                          "GIN_NCONTEXTS",
                                          "GIN_PLUGIN_REF_COUNT",
                                          "GIN_PROXY_QUEUE_SIZE",
                                          "GIN_SIGNAL_POOL_SIZE",
                                          "GIN_TYPE",
                                          "GRAPH_DUMP_FILE_RANK",
                                          "GRAPH_HELPER_DISABLE",
                                          "GRAPH_MIXING_SUPPORT",
                                          "GRAPH_REGISTER",
                                          "GRAPH_STREAM_ORDERING",
                                          "GROUP_CUDA_STREAM",
                                          "IB_ADAPTIVE_ROUTING",
                                          "IB_AR_THRESHOLD",
                                          "IB_DATA_DIRECT",
                                          "IB_DEVICE_PCI_ORDER",
                                          "IB_DISABLE",
                                          "IB_ECE_ENABLE",
                                          "IB_FIFO_TC",
                                          "IB_GID_INDEX",
                                          "IB_MERGE_NICS",
                                          "IB_MERGE_VFS",
                                          "IB_MQP_RETRY_ALL",
                                          "IB_MQP_RETRY_CNT",
                                          "IB_MQP_RETRY_SLEEP_MSEC",
                                          "IB_OOO_RQ",
                                          "IB_PCI_RELAXED_ORDERING",
                                          "IB_PKEY",
                                          "IB_PREPOST_RECEIVE_WORK_REQUESTS",
                                          "IB_QPS_PER_CONNECTION",
                                          "IB_QUERY_PORT_SPEED",
                                          "IB_RECEIVER_SIDE_MATCHING_SCHEME",
                                          "IB_RESILIENCY_PORT_FAILOVER",
                                          "IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS",
                                          "IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY",
                                          "IB_RESILIENCY_PORT_RECOVERY",
                                          "IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT",
                                          "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL",
                                          "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE",
                                          "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE",
                                          "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT",
                                          "IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX",
                                          "IB_RESILIENCY_PORT_RECOVERY_START_DELAY",
                                          "IB_RETRY_CNT",
                                          "IB_RETURN_ASYNC_EVENTS",
                                          "IB_ROCE_VERSION_NUM",
                                          "IB_ROUTABLE_FLID_GID_INDEX",
                                          "IB_SL",
                                          "IB_SPLIT_DATA_ON_QPS",
                                          "IB_SUBNET_AWARE_ROUTING",
                                          "IB_SUBNET_PREFIX_LEN",
                                          "IB_TC",
                                          "IB_TIMEOUT",
                                          "IB_USE_INLINE",
                                          "IB_WARN_RAIL_LOCAL",
                                          "IGNORE_COLLNET_MISMATCH",
                                          "IGNORE_CPU_AFFINITY",
                                          "IGNORE_DISABLED_P2P",
                                          "IGNORE_NET_MISMATCH",
                                          "IPC_USE_ABSTRACT_SOCKET",
                                          "L1_SHARED_MEMORY_CARVEOUT",
                                          "LAUNCH_ORDER_IMPLICIT",
                                          "LAUNCH_RACE_FATAL",
                                          "LEGACY_CUDA_REGISTER",
                                          "LL128_BUFFSIZE",
                                          "LL128_C2C",
                                          "LL128_NTHREADS",
                                          "LL_BUFFSIZE",
                                          "LOCAL_REGISTER",
                                          "LSA_TEAM_SIZE",
                                          "MAX_CTAS",
                                          "MAX_NCHANNELS",
                                          "MAX_NRINGS",
                                          "MAX_P2P_NCHANNELS",
                                          "MEM_SYNC_DOMAIN",
                                          "MIN_CTAS",
                                          "MIN_NCHANNELS",
                                          "MIN_NRINGS",
                                          "MIN_P2P_NCHANNELS",
                                          "MLOPART_RDMA_ENABLE",
                                          "MNNVL",
                                          "MNNVL_CLIQUE_ID",
                                          "MNNVL_CROSS_CLIQUE",
                                          "MNNVL_ENABLE",
                                          "MNNVL_RAIL_PER_HOST",
                                          "MNNVL_SCATTER_NETS_ENABLE",
                                          "MNNVL_UUID",
                                          "MULTI_RANK_GPU_ENABLE",
                                          "MULTI_SEGMENT_REGISTER",
                                          "NCHANNELS_PER_NET_PEER",
                                          "NET_DISABLE_INTRA",
                                          "NET_FORCE_FLUSH",
                                          "NET_GDR_C2C",
                                          "NET_GDR_MLOPART",
                                          "NET_GDR_READ",
                                          "NET_OPTIONAL_RECV_COMPLETION",
                                          "NET_OVERHEAD",
                                          "NET_PLUGIN_REF_COUNT",
                                          "NET_SHARED_BUFFERS",
                                          "NET_SHARED_COMMS",
                                          "NSOCKS_PERTHREAD",
                                          "NTHREADS",
                                          "NUM_RMA_CTX",
                                          "NVB_DISABLE",
                                          "NVB_PRECONNECT",
                                          "NVLINK_UTIL_CENTRIC_SCHED_ENABLE",
                                          "NVLSTREE_MAX_CHUNKSIZE",
                                          "NVLS_CHUNKSIZE",
                                          "NVLS_ENABLE",
                                          "NVLS_NCHANNELS",
                                          "NVTX_DISABLE",
                                          "OOB_NET_ENABLE",
                                          "P2P_DIRECT_DISABLE",
                                          "P2P_DISABLE",
                                          "P2P_EPOCH_ENABLE",
                                          "P2P_LL_THRESHOLD",
                                          "P2P_MAX_PEERS",
                                          "P2P_NET_CHUNKSIZE",
                                          "P2P_NVL_CHUNKSIZE",
                                          "P2P_PCI_CHUNKSIZE",
                                          "P2P_PER_CHANNEL_NET_BW",
                                          "P2P_PXN_LEVEL",
                                          "P2P_READ_ENABLE",
                                          "P2P_SCHEDULE_GROUP_SIZE",
                                          "P2P_USE_CUDA_MEMCPY",
                                          "PAT_ENABLE",
                                          "PROGRESS_APPENDOP_FREQ",
                                          "PROXY_APPEND_BATCH_SIZE",
                                          "PROXY_DUMP_SIGNAL",
                                          "PXN_C2C",
                                          "PXN_DISABLE",
                                          "RAS_ENABLE",
                                          "RAS_TIMEOUT_FACTOR",
                                          "REPORT_CONNECT_PROGRESS",
                                          "RMA_DISABLE",
                                          "RMA_PLUGIN_REF_COUNT",
                                          "RMA_PROXY_DUMP_SIGNAL",
                                          "RMA_PROXY_QUEUE_SIZE",
                                          "RUNTIME_CONNECT",
                                          "SET_CPU_STACK_SIZE",
                                          "SET_STACK_SIZE",
                                          "SET_THREAD_NAME",
                                          "SHADOW_MEMPOOL_MAX_SIZE",
                                          "SHM_DISABLE",
                                          "SHM_LOCALITY",
                                          "SHM_MEMCPY_MODE",
                                          "SHM_USE_CUDA_MEMCPY",
                                          "SINGLE_PROC_MEM_REG_ENABLE",
                                          "SOCKET_INLINE",
                                          "SOCKET_MIN_TASKSIZE",
                                          "SOCKET_NTHREADS",
                                          "SOCKET_POLL_TIMEOUT_MSEC",
                                          "SOCKET_RCVBUF",
                                          "SOCKET_RETRY_CNT",
                                          "SOCKET_RETRY_SLEEP_MSEC",
                                          "SOCKET_SNDBUF",
                                          "SYM_CE_THRESHOLD",
                                          "SYM_CTAS",
                                          "SYM_GIN_KERNELS_ENABLE",
                                          "SYM_NOWIN_ENABLE",
                                          "SYM_REUSE_SYSMEM_HANDLES",
                                          "SYM_RS_GIN_CHUNK_SIZE",
                                          "SYM_TMA_ENABLE",
                                          "TOPO_DUMP_FILE_RANK",
                                          "TOPO_SPLIT_MLOPART",
                                          "UID_STAGGER_RATE",
                                          "UID_STAGGER_THRESHOLD",
                                          "UNPACK_DOUBLE_NCHANNELS",
                                          "WARN_ENABLE_DEBUG_INFO",
                                          "WIN_ENABLE",
                                          "WIN_STRIDE",
                                          "WORK_ARGS_BYTES",
                                          "WORK_FIFO_BYTES",
                                          "WORK_FIFO_DEPTH"};

constexpr std::string_view kWords[] = {"ALGO",
                                       "CHECK_MODE",
                                       "COMM_ID",
                                       "CONF_FILE",
                                       "DEBUG",
                                       "DEBUG_FILE",
                                       "DEBUG_SUBSYS",
                                       "DEBUG_TIMESTAMP_FORMAT",
                                       "DEBUG_TIMESTAMP_LEVELS",
                                       "ENV_PLUGIN",
                                       "GIN_CONNECTION_RAIL",
                                       "GIN_PLUGIN",
                                       "GRAPH_DUMP_FILE",
                                       "GRAPH_FILE",
                                       "HOSTID",
                                       "IBVERBS_LIB",
                                       "IB_ADDR_FAMILY",
                                       "IB_ADDR_RANGE",
                                       "IB_HCA",
                                       "LAUNCH_MODE",
                                       "NET",
                                       "NETDEVS_POLICY",
                                       "NET_FORCE_MERGE",
                                       "NET_GDR_LEVEL",
                                       "NET_MERGE_LEVEL",
                                       "NET_MERGE_POLICY",
                                       "NET_PLUGIN",
                                       "NO_CACHE",
                                       "OOB_NET_IFNAME",
                                       "P2P_LEVEL",
                                       "PARAM_DUMP_ALL",
                                       "PROFILER_PLUGIN",
                                       "PROTO",
                                       "PROXY_CPUSET",
                                       "PROXY_PROFILE",
                                       "RAS_ADDR",
                                       "RMA_PLUGIN",
                                       "SOCKET_FAMILY",
                                       "SOCKET_IFNAME",
                                       "SOCKET_MAGIC",
                                       "SYM_KERNEL",
                                       "THREAD_THRESHOLDS",
                                       "TOPO_DUMP_FILE",
                                       "TOPO_FILE",
                                       "TUNER_PLUGIN"};
static_assert(std::is_sorted(std::begin(kIntegers), std::end(kIntegers)));
static_assert(std::is_sorted(std::begin(kWords), std::end(kWords)));

constexpr std::string_view kPrefix = "NCCL_";

std::string_view without_prefix(std::string_view name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : std::string_view();
}

/// Characters to insert, erase or replace, or neighbours to swap.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

bool is_nccl_integer(std::string_view name) {
  return std::binary_search(std::begin(kIntegers), std::end(kIntegers), without_prefix(name));
}

bool is_nccl_variable(std::string_view name) {
  return is_nccl_integer(name) ||
         std::binary_search(std::begin(kWords), std::end(kWords), without_prefix(name));
}

std::string nearest_nccl_variable(std::string_view name) {
  const std::string_view wanted = without_prefix(name);
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(2, wanted.size() / 3) + 1;
  const auto look_at = [&](std::string_view candidate) {
    const std::size_t d = distance(wanted, candidate);
    if (d >= least) return;
    least = d;
    nearest = candidate;
  };
  std::for_each(std::begin(kIntegers), std::end(kIntegers), look_at);
  std::for_each(std::begin(kWords), std::end(kWords), look_at);
  return nearest.empty() ? "" : std::string(kPrefix).append(nearest);
}

}  // namespace ddprun
