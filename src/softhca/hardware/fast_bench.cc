// The assembled adapter as compiled gates (yosys' CXXRTL, in "adapter.cc") with its host's memory and its link,
// for softhca.hardware.fast_bench.  A clock is what a clock of subsystem_bench.SubsystemBench is.
#include "adapter.cc"

#include <cstring>
#include <deque>
#include <vector>

namespace {

using Packet = std::vector<uint8_t>;

struct Bench {
    cxxrtl_design::p_subsystem gates;
    std::vector<uint32_t> memory;
    std::vector<bool> idle[2];  // addresses of each engine's program at which it waits for work
    std::deque<Packet> arrivals, departed;
    Packet leaving;
    size_t arrived = 0;
    uint64_t clock = 0, reads = 0, writes = 0;
    uint32_t latency, waited = 0, rested = 0;

    Bench(uint32_t words, uint32_t clocks) : memory(words), latency(clocks) {
        for (auto &addresses : idle) addresses.resize(4096);
    }

    void begin() {
        gates.reset();
        std::fill(memory.begin(), memory.end(), 0);
        arrivals.clear();
        departed.clear();
        leaving.clear();
        arrived = clock = reads = writes = waited = rested = 0;
        gates.p_rst.set<bool>(true);
        edge();
        gates.p_rst.set<bool>(false);
        settle();
    }

    void settle() {
        gates.p_clk.set<bool>(false);
        gates.step();
    }

    void edge() {
        settle();
        gates.p_clk.set<bool>(true);
        gates.step();
    }

    // The word at the host's address; beyond its memory it refuses.
    bool answer() {
        bool done = false;
        if (gates.p_host____valid.get<bool>()) {
            done = waited >= latency;
            waited = done ? 0 : waited + 1;
            rested = 0;
        }
        if (done) {
            uint64_t place = gates.p_host____address.get<uint64_t>() >> 2;
            bool refused = place >= memory.size();
            if (!refused && gates.p_host____write.get<bool>()) {
                uint32_t mask = gates.p_host____mask.get<uint32_t>(), bits = 0;
                for (int byte = 0; byte < 4; byte++)
                    if (mask >> byte & 1) bits |= 0xFFu << 8 * byte;
                memory[place] = (memory[place] & ~bits) | (gates.p_host____write__data.get<uint32_t>() & bits);
                writes++;
            } else if (!refused) {
                reads++;
            }
            gates.p_host____read__data.set<uint32_t>(refused ? 0 : memory[place]);
            gates.p_host____error.set<bool>(refused);
        }
        gates.p_host____done.set<bool>(done);
        return done;
    }

    bool arrive() {
        bool valid = !arrivals.empty(), changes = valid || gates.p_receive____valid.get<bool>();
        gates.p_receive____valid.set<bool>(valid);
        bool last = false;
        if (valid) {
            Packet &packet = arrivals.front();
            uint32_t data = packet[arrived] << 8 | (arrived + 1 < packet.size() ? packet[arrived + 1] : 0);
            gates.p_receive____data.set<uint32_t>(data);
            arrived += 2;
            last = arrived >= packet.size();
            rested = 0;
            if (last) {
                arrivals.pop_front();
                arrived = 0;
            }
        }
        gates.p_receive____last.set<bool>(last);
        return changes;
    }

    void depart() {
        if (!gates.p_transmit____valid.get<bool>()) return;
        uint32_t data = gates.p_transmit____data.get<uint32_t>();
        leaving.push_back(data >> 8);
        leaving.push_back(data & 0xFF);
        rested = 0;
        if (gates.p_transmit____last.get<bool>()) {
            departed.push_back(leaving);
            leaving.clear();
        }
    }

    void tick() {
        settle();  // what the last edge has changed
        bool given = arrive();
        given |= answer();
        if (given) gates.step();
        depart();
        gates.p_clk.set<bool>(true);
        gates.step();
        if (!idle[0][gates.p_sq__engine_2e_sequencer_2e_address.get<uint32_t>()] ||
            !idle[1][gates.p_rq__engine_2e_sequencer_2e_address.get<uint32_t>()])
            rested = 0;
        gates.p_host____done.set<bool>(false);
        clock++;
        rested++;
    }
};

}  // namespace

extern "C" {

Bench *bench_new(uint32_t words, uint32_t latency) {
    Bench *bench = new Bench(words, latency);
    bench->begin();
    return bench;
}

void bench_delete(Bench *bench) { delete bench; }

void bench_begin(Bench *bench) { bench->begin(); }

uint32_t *bench_memory(Bench *bench) { return bench->memory.data(); }

uint64_t bench_clock(Bench *bench) { return bench->clock; }

void bench_arrive(Bench *bench, const uint8_t *data, uint32_t length) {
    bench->arrivals.emplace_back(data, data + length);
}

// The length of the oldest packet that has left, 0 where there is none; it is copied where it fits.
uint32_t bench_departed(Bench *bench, uint8_t *data, uint32_t room) {
    if (bench->departed.empty()) return 0;
    Packet packet = bench->departed.front();
    bench->departed.pop_front();
    std::memcpy(data, packet.data(), std::min<size_t>(room, packet.size()));
    return packet.size();
}

void bench_idle(Bench *bench, int engine, uint32_t address) { bench->idle[engine][address & 4095] = true; }

// Clocks until both engines wait for work, and nobody uses host memory or link, for `quiet` of them; or a packet
// has left; `most` at most.
uint32_t bench_run(Bench *bench, uint32_t most, uint32_t quiet, int until_packet) {
    uint32_t ran = 0;
    while (ran < most && bench->rested < quiet && !(until_packet && !bench->departed.empty())) {
        bench->tick();
        ran++;
    }
    return ran;
}

// One access to the local bus; false where it has not been taken within `most` clocks.
int bench_access(Bench *bench, uint32_t address, int write, uint32_t *data, uint32_t most) {
    auto &gates = bench->gates;
    gates.p_access____valid.set<bool>(true);
    gates.p_access____write.set<bool>(write);
    gates.p_access____address.set<uint32_t>(address);
    gates.p_access____write__data.set<uint32_t>(write ? *data : 0);
    bool taken = false;
    for (uint32_t clocks = 0; clocks < most && !taken; clocks++) {
        bench->settle();
        taken = gates.p_access____ready.get<bool>();
        if (!write) *data = gates.p_access____read__data.get<uint32_t>();
        bench->tick();
    }
    gates.p_access____valid.set<bool>(false);
    bench->rested = 0;
    return taken;
}

// A word of an engine's microcode, a word of the remote-key memory, where they stand.
void bench_microcode(Bench *bench, int engine, uint32_t place, uint64_t word) {
    auto &memory = engine ? bench->gates.memory_p_rq__engine_2e_memory_2e_memory
                          : bench->gates.memory_p_sq__engine_2e_memory_2e_memory;
    value<44> stored;
    stored.set<uint64_t>(word);
    memory[place] = stored;
}

void bench_key(Bench *bench, uint32_t place, uint32_t word, uint32_t *read) {
    auto &memory = bench->gates.memory_p_keys_2e_manager_2e_rq_2e_memory_2e_ram;
    if (read) {
        *read = memory[place].get<uint32_t>();
        return;
    }
    value<28> stored;
    stored.set<uint32_t>(word);
    memory[place] = stored;
}

uint32_t bench_address(Bench *bench, int engine) {
    return engine ? bench->gates.p_rq__engine_2e_sequencer_2e_address.get<uint32_t>()
                  : bench->gates.p_sq__engine_2e_sequencer_2e_address.get<uint32_t>();
}

}
