#!/bin/busybox sh
# /init of the Linux guest, whose first and only process it is. The kernel's command line says
# which step to take; `guest:` in front of a line on the console means that it is for the test.
#
# Where a command fails, the machine ends without the line that says the step is done.
set -eu

/bin/busybox mkdir -p /proc /sys /dev /fs
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
trap 'poweroff -f' EXIT
for module in $(find /modules -name '*.ko' | sort); do
    insmod "$module"
done
until [ -b /dev/vda ]; do usleep 10000; done

# The filesystem has the first 64 MiB of the disk; what is behind it is written to directly.
disk=/dev/vda
fs_mib=64
# Requests as small and as large as asked for, unless busybox is too old to do without the cache.
direct=
if dd --help 2>&1 | grep -q 'oflag=direct'; then direct=oflag=direct; fi

make_fs() {
    /sbin/mke2fs -q -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 -J size=4 $disk ${fs_mib}M
    mount -t ext4 $disk /fs
}

# Finds what does not fit together, and repairs nothing.
check_fs() {
    /sbin/e2fsck -f -n $disk
}

sums() {
    (cd /fs && find . -type f | sort | xargs sha256sum) | sed 's/^/guest: sum /'
}

raw_sum() {
    echo "guest: raw $(dd if=$disk bs=1M skip=$fs_mib 2>/dev/null | sha256sum)"
}

# Files of many sizes and patterns, and the writes that the test listed.
fill() {
    make_fs
    mkdir -p /fs/noise /fs/many
    for size in 1 511 4096 65537 1048579; do
        head -c $size /noise >/fs/noise/$size
    done
    dd if=/dev/zero of=/fs/zeroes bs=64k count=33 conv=fsync
    head -c 300001 /dev/zero | tr '\0' '\377' | dd of=/fs/ones bs=3k conv=fsync
    seq 1 30000 >/fs/text
    dd if=/noise of=/fs/holes bs=4k count=1 seek=1000
    dd if=/noise of=/fs/holes bs=512 count=3 seek=99 conv=notrunc,fsync
    for n in $(seq 1 50); do echo "file $n" >/fs/many/$n; done
    mv /fs/many/1 /fs/moved

    # Space that is used, freed, and given back to the device.
    dd if=/noise of=/fs/gone bs=1M count=2 conv=fsync
    rm /fs/gone
    sync
    fstrim /fs

    while read -r bs seek count; do
        dd if=/noise of=$disk bs="$bs" seek="$seek" count="$count" conv=notrunc,fsync $direct
    done </writes

    sums
    umount /fs
    check_fs
    raw_sum
}

# What `fill` left, in a machine that has nothing of it in memory.
check() {
    check_fs
    mount -t ext4 $disk /fs
    sums
    # It can be worked on, too.
    echo more >/fs/more
    umount /fs
    check_fs
    raw_sum
}

# Keeps files, each fsynced before it is said to be kept, beside other writes. Never ends.
keep() {
    make_fs
    while :; do
        dd if=/noise of=/fs/load bs=64k conv=notrunc,fsync 2>/dev/null
    done &
    mkdir /fs/kept
    n=0
    while :; do
        n=$((n + 1))
        seq $n $((n + 2000)) | dd of=/fs/kept/$n conv=fsync 2>/dev/null
        echo "guest: kept $(cd /fs && sha256sum ./kept/$n)"
    done
}

# What `keep` left when the machine was killed. Mounting repairs the filesystem from its journal.
recover() {
    mount -t ext4 $disk /fs
    sums
    umount /fs
    check_fs
}

# A disk that is made larger and smaller again, without a reboot. What is written is at its new end.
resized() {
    echo "guest: sectors $(cat /sys/block/vda/size)"
    for n in 1 2; do
        before=$(cat /sys/block/vda/size)
        until [ "$(cat /sys/block/vda/size)" != "$before" ]; do usleep 10000; done
        after=$(cat /sys/block/vda/size)
        dd if=/noise of=$disk bs=1M seek=$((after / 2048 - 1)) count=1 conv=notrunc,fsync
        echo "guest: sectors $after"
    done
}

# Returns once the last block of the disk begins with "go", which the test writes.
await_go() {
    until [ "$(dd if=$disk bs=4k skip=$(($(blockdev --getsize64 $disk) / 4096 - 1)) count=1 \
        iflag=direct 2>/dev/null | head -c 2)" = go ]; do
        usleep 20000
    done
}

# Writes 8 MiB from each CPU, which has a queue of its own, and discards the first 24 MiB of the
# disk when it is told to.
queues() {
    cpus=$(nproc)
    for cpu in $(seq 0 $((cpus - 1))); do
        for n in 0 1 2 3; do
            taskset "$(printf %x $((1 << cpu)))" \
                dd if=/noise of=$disk bs=64k seek=$((128 * cpu + 32 * n)) conv=notrunc oflag=direct
        done
    done
    for queue in /sys/block/vda/mq/*; do
        echo "guest: queue ${queue##*/} of CPUs $(cat "$queue/cpu_list")"
    done
    awk -v cpus="$cpus" '/virtio[0-9]+-req/ {
        n = 0
        for (i = 2; i < 2 + cpus; i++) n += $i
        print "guest: interrupts " $NF " " n
    }' /proc/interrupts
    echo "guest: written all"
    await_go
    blkdiscard -o 0 -l $((24 << 20)) $disk
}

# What a machine does that is reset while it writes: before that, and after it.
reset() {
    if mount -t ext4 $disk /fs 2>/dev/null; then
        umount /fs
        recover
    else
        keep
    fi
}

# Random I/O by fio, without an end.
load() {
    echo "guest: load begins"
    fio --name=load --filename=$disk --direct=1 --ioengine=libaio --thread --time_based \
        --runtime=1h --norandommap --randrepeat=0 --eta=never "$@"
}

steady() {
    load --rw=randread --bs=4k --iodepth=4
}

noisy() {
    load --rw=randrw --bs=64k --iodepth=64
}

# The kernel hands what it does not know on its command line to init: step=.
"$step"
sync
echo "guest: done $step"
